"""What the other rooms of the recorder stand on: how a listener is put in and taken out, the
layout written to disk, the machine, and the words between parent and child."""
