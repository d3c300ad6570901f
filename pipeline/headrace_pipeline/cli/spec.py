"""`headrace-pipeline spec`: prints what runs a job on Kubernetes."""

from __future__ import annotations

from typing import Any

import click
import yaml

from headrace_pipeline.jobs.session import read_conf
from headrace_pipeline.jobs.spec import FORMS, JOBS, Wish, manifests, read_pairs, resources_of
from headrace_sparkdriver.driver import Driver


@click.command()
@click.argument("job", type=click.Choice(JOBS))
@click.option(
    "--kind", "form", type=click.Choice(FORMS), default="pipelinerun", help="of manifests"
)
@click.option("--name", help="of the run; the job's, unless told otherwise", show_default=False)
@click.option("--namespace", default="default", help="of all manifests")
@click.option("--cluster", default="", help="BrokerCluster of a PipelineRun")
@click.option(
    "--endpoints", default="", envvar="HEADRACE_ENDPOINTS", help="of brokers, for the other kinds"
)
@click.option("--tls/--no-tls", default=False, help="whether the endpoints speak TLS")
@click.option("--image", default="headrace/pipeline:latest", help="of the pipeline")
@click.option("--master", default="local[*]", help="of Spark")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="a setting of Spark's")
@click.option(
    "--option", multiple=True, metavar="NAME=VALUE", help="an option of the job's command"
)
@click.option("--credentials", default="", help="Secret with username and password")
@click.option(
    "--ca", "authority", default="", help="Secret with ca.crt; the operator makes one itself"
)
@click.option("--certificate", default="", help="Secret with tls.crt and tls.key")
@click.option("--service-account", default="", help="with rights to make executors")
@click.option("--claim", default="", help="PersistentVolumeClaim that is there")
@click.option(
    "--storage", "claim_size", default="10Gi", help="size of the claim that is made; '' for none"
)
@click.option("--storage-class", default="", help="likewise, its class")
@click.option("--request", multiple=True, metavar="NAME=QUANTITY", help="resources, such as cpu=1")
@click.option("--limit", multiple=True, metavar="NAME=QUANTITY", help="likewise, at most")
def spec(job: str, form: str, cluster: str, **given: object) -> None:
    """Print manifests that run JOB (archive, flow, report, replay or compact) on Kubernetes.

    A pipelinerun is for Headrace's operator, a sparkapplication for Apache Spark's, the others are
    for Kubernetes alone.
    """
    driver = _driver(job, **given)  # type: ignore[arg-type]  # click has checked them
    if form != "pipelinerun" and not driver.endpoints:
        raise click.UsageError(f"--kind {form} needs --endpoints")
    found = manifests(Wish(driver, cluster), form)
    click.echo(yaml.safe_dump_all(found, sort_keys=False), nl=False)


def _driver(
    job: str,
    *,
    name: str | None,
    tls: bool,
    conf: tuple[str, ...],
    option: tuple[str, ...],
    request: tuple[str, ...],
    limit: tuple[str, ...],
    **given: Any,
) -> Driver:
    return Driver(
        name=name or job,
        job=job,
        tls=tls or bool(given["authority"] or given["certificate"]),
        options=read_pairs("option", option),
        conf=read_conf(conf),
        resources=resources_of(read_pairs("request", request), read_pairs("limit", limit)),
        **given,
    )
