# Names to ask for: stages of the suite, every table, figure and task (dac/config/suites.py: targets).

for target, files in TARGETS.items():

    rule:
        name:
            target
        input:
            files,
        localrule: True
