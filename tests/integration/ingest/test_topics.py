"""What a Kafka client's failures become."""

import pytest

from icecdc_core.errors import KafkaAuthError, KafkaError, KafkaUnreachableError, TopicNotFoundError
from icecdc_core.ingest.kafka import Topics


@pytest.mark.parametrize("servers", ["127.0.0.1:9", "no-such-host.invalid:9092"])
def it_names_brokers_that_do_not_answer(spark, make_ingest, servers):
    config = make_ingest(
        bootstrap_servers=servers, kafka_options={"request.timeout.ms": "500", "default.api.timeout.ms": "500"}
    )
    with pytest.raises(KafkaUnreachableError, match="No broker answers") as caught:
        Topics(spark, config).names()
    assert caught.value.value == servers


def it_names_credentials_that_a_broker_refuses_and_a_wrong_client_property(spark, make_ingest):
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=p;",
    }
    # This broker has no SASL, so it refuses the handshake.
    with pytest.raises(KafkaAuthError, match="refuse the credentials"):
        Topics(spark, make_ingest(kafka_options=options)).names()
    with pytest.raises(KafkaError, match=r"Kafka failed: .*security.protocol") as caught:
        Topics(spark, make_ingest(kafka_options={"security.protocol": "none such"}))
    assert type(caught.value) is KafkaError


def it_finds_topics_by_name_and_by_pattern(spark, make_ingest, topic):
    topic.send({"id": 1}, partition=0)
    for given in ({}, {"topics": "", "topic_pattern": f"{topic.name}|none"}):
        topics = Topics(spark, make_ingest(**given))
        names = topics.names()
        assert (names, topics.earliest(names), topics.latest(names)) == (
            [topic.name],
            {topic.name: {0: 0, 1: 0}},
            {topic.name: {0: 1, 1: 0}},
        )
        topics.close()


def it_names_topics_that_do_not_exist(spark, make_ingest):
    for given, subject in (
        ({"topics": "nowhere"}, "topics"),
        ({"topics": "", "topic_pattern": "now.ere"}, "topic_pattern"),
    ):
        topics = Topics(spark, make_ingest(**given))
        with pytest.raises(TopicNotFoundError) as caught:
            topics.names()
        topics.close()
        assert caught.value.subject == subject
