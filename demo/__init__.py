"""The demo: real tables, real services and a day of operations. Not part of the installed package."""
