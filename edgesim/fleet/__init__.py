"""The fleet: hosts that drive devices, the Ray actors around them, launch and recording."""

from edgesim.system import check_system

# All that trains imports this package, the command line and Python code alike. Its modules import
# others that Windows lacks, so the system is refused before them.
check_system()
