"""Runs one program of OpenStack: launch.py PROGRAM [ARGUMENT...].

Python searches modules in the folder of this file first. A file here must not have the name of a module of OpenStack.
"""

import gc
import importlib
import os
import sys

PROGRAMS = {
    "cinder-api": "cinder.cmd.api:main",
    "cinder-manage": "cinder.cmd.manage:main",
    "cinder-scheduler": "cinder.cmd.scheduler:main",
    "cinder-volume": "cinder.cmd.volume:main",
    "glance-api": "glance.cmd.api:main",
    "glance-manage": "glance.cmd.manage:main",
    "keystone-manage": "keystone.cmd.manage:main",
    "neutron-db-manage": "neutron.db.migration.cli:main",
    "neutron-server": "neutron.cmd.eventlet.server:main",
    "nova-api": "nova.cmd.api_os_compute:main",
    "nova-api-metadata": "nova.cmd.api_metadata:main",
    "nova-compute": "nova.cmd.compute:main",
    "nova-conductor": "nova.cmd.conductor:main",
    "nova-manage": "nova.cmd.manage:main",
    "nova-scheduler": "nova.cmd.scheduler:main",
    "openstack": "openstackclient.shell:main",
    "placement-manage": "placement.cmd.manage:main",
}

# Applications that need a web server and contain none.
APPLICATIONS = {
    "keystone": "keystone.server.wsgi:initialize_public_application",
    "placement": "placement.wsgi:init_application",
}


def load(name):
    """Imports a function. Imported objects never become garbage, so garbage collection only wastes time."""
    gc.disable()
    module, function = name.split(":")
    found = getattr(importlib.import_module(module), function)
    gc.freeze()
    gc.enable()
    return found


def serve(application, port):
    """Serves an application until the process ends."""
    import waitress

    waitress.serve(application, host="127.0.0.1", port=int(port), threads=8, ident=None)


def main():
    program = sys.argv[1]
    sys.argv = [program] + sys.argv[2:]
    if program in APPLICATIONS:
        port = sys.argv.pop()
        serve(load(APPLICATIONS[program])(), port)
        return 0
    return load(PROGRAMS[program])()


if __name__ == "__main__":
    # The output is a log, which must not be buffered.
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
