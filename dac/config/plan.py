"""The section `plan`: the assumptions of the cost model."""

from dac.config.base import (
    Backbone,
    Count,
    DataName,
    Few,
    Line,
    NonNegative,
    Positive,
    Section,
    Side,
)


class Plan(Section):
    """The numbers of the cost model behind `dac plan` and the time limits of jobs."""

    gpu: Line
    teraflops: Positive
    """Throughput that this GPU is assumed to sustain in fp32 training."""
    gigaflops_per_view: dict[Backbone, Positive]
    """Cost of one forward pass of an image of side `side_of_view`; training takes three."""
    side_of_view: dict[Backbone, Side]
    """Side of that image; cost grows with its square."""
    step_over_floor: dict[Line, Positive]
    """Method -> time of its step relative to the forward and backward passes in it, from
    `python -m benchmarks`; 1 for methods that are not listed."""
    train_images: dict[DataName, Count]
    """Images that pre-training sees in an epoch; about as many are in the pool."""
    test_images: dict[DataName, Count]
    """Images that every evaluation during training reads."""
    gigabytes_of_data: dict[DataName, NonNegative]
    """Raw and prepared data together."""
    megabytes_per_run: dict[Backbone, Positive]
    memory_mb: dict[DataName, Count]
    """Main memory of a training job."""
    threads: dict[DataName, Few]
    """Cores of a training job."""
    safety: Positive
    """A job's time limit is its expected time times this ..."""
    longest_job_minutes: Count
    """... and at most this, which the queue must allow; a longer run stops in time and resumes."""
    shortest_job_minutes: Count
    """... and at least this, for start-up and small jobs."""
    evaluate_minutes: Count
    """Time limit of a pass over pool and test images, which starts over if it is killed."""
    cpu_minutes: Count
    """Time limit of jobs on CPU nodes: preparing data, tables, figures."""
    cpu_memory_mb: Count
    """Main memory of those jobs."""
