"""`laconic bench SUITE`."""

import typer

from laconic.cli.bench import codec, decentralised, glm, kernels, network, papers, plan

app = typer.Typer(help="Re-run our benchmarks on this machine.")
for command in (
    network.exchange,
    network.ddp,
    decentralised.decentralised,
    glm.glm,
    kernels.kernels,
    plan.plan,
    papers.papers,
    codec.codec,
):
    app.command()(command)


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Re-run our benchmarks on this machine."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
