"""What a process reports about itself while it runs: health probes, Prometheus metrics, systemd's watchdog.

health.py     the answers to three questions: is the process live, is it ready, has it started?
endpoint.py   the HTTP server of a process: /livez, /readyz, /startupz and /metrics
loop_watch.py notices a blocked event loop
asking.py     asks the endpoint of another process
merging.py    one page of metrics for all processes of a supervisor
systemd.py    the same answers for systemd, through NOTIFY_SOCKET
monitor.py    starts and stops both, depending on the settings of a process
series.py     every metric: its name, kind, labels and meaning
meter.py      the numbers of one process, as text for Prometheus

This package knows neither stores nor tasks. Each role reports its own health and counts its own numbers. A process
without a port imports neither the HTTP server nor prometheus-client.
"""
