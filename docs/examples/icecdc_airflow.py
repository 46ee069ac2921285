"""Airflow: syncs all indexes of a file every five minutes and validates them every night.

Copy it to the folder of your DAGs. Each worker needs `icecdc` on its PATH, Java, and ICECDC_FILE, the index file.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

LOCKED = 6  # another run has locked the index and does the work

for name, schedule, command in (
    ("icecdc_sync", "*/5 * * * *", 'icecdc sync --file "$ICECDC_FILE" --json'),
    ("icecdc_validate", "30 3 * * *", 'icecdc validate --file "$ICECDC_FILE" --validate-at position --json'),
):
    with DAG(name, schedule=schedule, start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1) as dag:
        BashOperator(
            task_id=name,
            bash_command=command,
            skip_on_exit_code=LOCKED,
            retries=2,
            retry_delay=timedelta(minutes=1),
            # The last line of the output is the report; Airflow keeps it as the task's XCom.
            do_xcom_push=True,
        )
    globals()[name] = dag
