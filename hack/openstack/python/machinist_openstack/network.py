"""A network that exists only in neutron's database."""

from neutron.services.trunk.drivers import base
from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api
from neutron_lib.services.trunk import constants as trunk


class MechanismDriver(api.MechanismDriver):
    """Binds every port on every host."""

    def initialize(self):
        self.trunks = Trunks(
            "machinist",
            (portbindings.VIF_TYPE_OTHER,),
            (trunk.SEGMENTATION_TYPE_VLAN,),
            can_trunk_bound_port=True,
        )

    def bind_port(self, context):
        for segment in context.segments_to_bind:
            context.set_binding(
                segment[api.ID],
                portbindings.VIF_TYPE_OTHER,
                {portbindings.CAP_PORT_FILTER: True},
                status=constants.PORT_STATUS_ACTIVE,
            )
            return


class Trunks(base.DriverBase):
    """Accepts every trunk."""

    @property
    def is_loaded(self):
        return True
