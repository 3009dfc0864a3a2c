"""What this start of Snakemake is for, which a Snakefile cannot ask Snakemake while it is read."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout

WITHOUT_JOBS = (  # options as `args_to_api` of snakemake/cli.py looks at them
    *("dryrun", "lint", "list_target_rules", "list_rules", "print_compilation", "containerize"),
    *("generate_unit_tests", "dag", "rulegraph", "filegraph", "d3dag", "unlock"),
    *("cleanup_metadata", "conda_cleanup_envs", "conda_create_envs_only", "list_conda_envs"),
    *("cleanup_shadow", "container_cleanup_images", "list_changes", "list_input_changes"),
    *("list_params_changes", "list_untracked", "summary", "detailed_summary", "archive"),
    *("delete_all_output", "delete_temp_output"),
)


def executor(arguments: Sequence[str]) -> str | None:
    """Return the executor that a command line of Snakemake asks for; None if it runs no jobs."""
    from snakemake.cli import parse_args  # type: ignore[import-untyped]

    try:
        with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            _, found = parse_args(list(arguments))
    except (Exception, SystemExit):  # not the command line of a Snakemake
        return None
    if any(getattr(found, name) for name in WITHOUT_JOBS):
        return None
    if (found.report or found.reporter) and not found.report_after_run:
        return None
    return str(found.executor or "local")
