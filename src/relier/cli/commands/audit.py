"""rl audit: prove that no task was lost and no key leaks."""

from __future__ import annotations

import click

from relier.cli.audit import AuditReport, audit, auditor
from relier.cli.output import many, print_json
from relier.cli.session import Exit, Session, with_session


@click.command("audit")
@with_session
def audit_command(session: Session) -> Exit:
    """Prove that no task was lost and no key leaks.

    Reads every key of the namespace while it works; what looks wrong is looked at three times before it is told.
    Exits with 1 where something is wrong.
    """
    report = audit(session.store, session.ledger, keyring=session.keyring, pause=auditor.PAUSE)
    if session.as_json:
        print_json({"ok": report.ok, "namespace": session.settings.namespace, **report.as_dict()})
    else:
        _tell(session, report)
    return Exit.OK if report.ok else Exit.PROBLEM


def _tell(session: Session, report: AuditReport) -> None:
    records = sum(report.records.values())
    click.echo(
        f"Looked at {many(sum(report.keys.values()), 'key')}, {many(records, 'record')} and "
        f"{many(report.entries, 'index entry', 'index entries')} of {session.where} in {report.seconds:.1f} s."
    )
    click.echo(report.equation)
    if report.overdue:
        click.echo(
            f"! {many(report.overdue, 'ended record')} should have been removed over a minute ago: nobody sweeps. "
            f"Start a worker, or `rl resurrector`."
        )
    for finding in report.findings:
        click.echo(f"✗ {finding.problem}\n    {finding.advice}")
    if report.untold:
        click.echo(f"✗ {many(report.untold, 'more thing')} looked wrong and were not looked at again.")
    if report.ok:
        click.echo("✓ Nothing is lost, and nothing leaks.")
    else:
        click.echo(f"{many(len(report.findings), 'finding')}.")
