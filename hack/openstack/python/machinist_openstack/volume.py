"""Volumes that exist only in cinder's database."""

from cinder import interface
from cinder.volume import driver


@interface.volumedriver
class Driver(driver.VolumeDriver):
    """Accepts every request without an effect."""

    VERSION = "1.0.0"
    CI_WIKI_NAME = "none"

    def check_for_setup_error(self):
        pass

    def create_volume(self, volume):
        pass

    def create_volume_from_snapshot(self, volume, snapshot):
        pass

    def create_cloned_volume(self, volume, src_vref):
        pass

    def clone_image(self, context, volume, image_location, image_meta, image_service):
        # True means that the volume contains the image, so cinder does not download it.
        return {}, True

    def copy_image_to_volume(self, context, volume, image_service, image_id, disable_sparse=False):
        pass

    def delete_volume(self, volume):
        pass

    def extend_volume(self, volume, new_size):
        pass

    def create_snapshot(self, snapshot):
        pass

    def delete_snapshot(self, snapshot):
        pass

    def ensure_export(self, context, volume):
        pass

    def create_export(self, context, volume, connector):
        pass

    def remove_export(self, context, volume):
        pass

    def initialize_connection(self, volume, connector):
        return {"driver_volume_type": "fake", "data": {"volume_id": volume["id"]}}

    def terminate_connection(self, volume, connector, **kwargs):
        pass

    def _update_volume_stats(self):
        self._stats = {
            "volume_backend_name": self.configuration.safe_get("volume_backend_name"),
            "vendor_name": "Machinist",
            "driver_version": self.VERSION,
            "storage_protocol": "fake",
            "total_capacity_gb": 1000000,
            "free_capacity_gb": 1000000,
            "reserved_percentage": 0,
            "max_over_subscription_ratio": 20.0,
            "thin_provisioning_support": True,
            "multiattach": True,
        }
