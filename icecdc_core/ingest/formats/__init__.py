"""Record formats: bytes become JSON payloads with their operations, or reasons why they are unreadable."""
