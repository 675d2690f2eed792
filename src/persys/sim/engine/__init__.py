"""Virtual time and simulated processes.

    virtual_loop.py    an event loop whose clock jumps to the next timer
    process.py         one process: its gates, freeze and crash
    hardware.py        capacity and wall clock of a machine
    trace.py           the trace of a run, its random numbers, and the capture of logs

Used by all other packages of the simulation.
"""
