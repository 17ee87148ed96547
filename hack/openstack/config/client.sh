#!/bin/sh
# Runs the openstack command of Debian. OS_CLOUD selects a cloud in config/clouds.yaml.
export LD_LIBRARY_PATH='{{.Root}}/usr/lib/x86_64-linux-gnu'
export PYTHONPATH='{{.Root}}/usr/lib/python3/dist-packages'
export OS_CLIENT_CONFIG_FILE="${OS_CLIENT_CONFIG_FILE:-{{.Dir}}/config/clouds.yaml}"
export OS_CLOUD="${OS_CLOUD:-machinist}"
exec /usr/bin/python3 -W ignore '{{.Dir}}/python/launch.py' openstack "$@"
