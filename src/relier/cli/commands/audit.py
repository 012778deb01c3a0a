"""rl audit: verify that no task was lost, and no unused key was left behind in the store."""

from __future__ import annotations

import click

from relier.cli.audit import AuditReport, audit, auditor
from relier.cli.audit.findings import REPAIRED_BY_WORKERS
from relier.cli.namespace_reads import NamespaceReads
from relier.cli.output import plural, print_json, progress_bar
from relier.cli.session import Exit, Session, with_session


@click.command("audit")
@with_session
def audit_command(session: Session) -> Exit:
    """Verify that no task was lost, and no unused key was left behind in the store.

    Reads every key of the namespace. Workers may keep running: a problem is reported only if three checks find it.
    Exits with 1 if something is wrong. Running workers repair most kinds of damage by themselves.
    """
    total = NamespaceReads(session.store, session.ledger).size()
    with progress_bar("Reading", total) as advance:
        report = audit(session.store, session.ledger, keyring=session.keyring, pause=auditor.PAUSE, advance=advance)
    if session.as_json:
        print_json({"ok": report.ok, "namespace": session.settings.namespace, **report.as_dict()})
    else:
        _tell(session, report)
    return Exit.OK if report.ok else Exit.PROBLEM


def _tell(session: Session, report: AuditReport) -> None:
    records = sum(report.records.values())
    click.echo(
        f"Checked {plural(sum(report.keys.values()), 'key')}, {plural(records, 'record')} and "
        f"{plural(report.entries, 'index entry', 'index entries')} in {session.where} in {report.seconds:.1f} s."
    )
    click.echo(report.equation)
    if report.overdue:
        click.echo(
            f"! {plural(report.overdue, 'ended record')} should have been removed over a minute ago: no worker sweeps. "
            f"Start `rl worker` or `rl resurrector`."
        )
    if report.repaired:
        kinds = ", ".join(f"{kind} {n}" for kind, n in report.repaired.items())
        click.echo(f"Workers have repaired {plural(sum(report.repaired.values()), 'damaged key')} so far: {kinds}.")
    for finding in report.findings:
        click.echo(f"✗ {finding.problem}\n    {finding.advice}")
    if report.untold:
        click.echo(f"✗ {plural(report.untold, 'further suspect')} not checked again: too many problems.")
    if report.ok:
        click.echo("✓ No task was lost, and no unused key was left behind.")
    else:
        click.echo(f"{plural(len(report.findings), 'finding')}.")
        if any(finding.kind in REPAIRED_BY_WORKERS for finding in report.findings):
            click.echo("Running workers repair most of these within seconds, and log `repaired kind=…`. Audit again.")
