package source

import (
	"fmt"
	"testing"

	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: migration-replaces-old-placeholders.
func TestPlaceholdersOfUserData(t *testing.T) {
	const osm = provider.SourceClusterK8s
	for _, test := range []struct{ group, old, want, unknown string }{
		{osm, "#cloud-config\nhostname: <MACHINE_NAME>\n", "#cloud-config\nhostname: <<MACHINE_NAME>>\n", "[]"},
		{osm, "data:,%3CMACHINE_NAME%3E%0A", "data:,%3C%3CMACHINE_NAME%3E%3E%0A", "[]"},
		{osm, "data:,%3cMACHINE_NAME%3e", "data:,%3c%3cMACHINE_NAME%3e%3e", "[]"},
		{osm, "name: <NODE_ADDRESS>, %3CPOOL_NAME%3E", "name: <NODE_ADDRESS>, %3CPOOL_NAME%3E",
			"[%3CPOOL_NAME%3E <NODE_ADDRESS>]"},
		{osm, "cat <<EOF>/etc/motd\nEOF\n", "cat <<EOF>/etc/motd\nEOF\n", "[]"},
		{provider.SourceGardener, "<<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>", "<<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>", "[]"},
		{provider.SourceGardener, "echo <MACHINE_NAME>", "echo <MACHINE_NAME>", "[]"},
		{provider.SourceGardener, "<<NODE_ADDRESS>>", "<<NODE_ADDRESS>>", "[<<NODE_ADDRESS>>]"},
	} {
		got, unknown, err := TranslateUserData(test.group, []byte(test.old))
		if err != nil || string(got) != test.want || fmt.Sprint(unknown) != test.unknown {
			t.Errorf("%q of %s becomes %q with %v unknown, error %v", test.old, test.group, got, unknown, err)
		}
	}
	packed := bootstrap.Compress([]byte("hostname: <MACHINE_NAME>"))
	got, _, err := TranslateUserData(osm, packed)
	if err != nil || !bootstrap.HasPlaceholder(got, bootstrap.MachineName) {
		t.Errorf("compressed user data becomes %q, error %v", got, err)
	}
	if _, _, err := TranslateUserData(osm, packed[:12]); err == nil {
		t.Error("user data that cannot be decompressed is accepted")
	}
}
