package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider"
)

type fakeDriver struct {
	provider.Driver
	name            string
	timeout, settle time.Duration
}

func (d fakeDriver) Name() string                { return d.name }
func (d fakeDriver) CallTimeout() time.Duration  { return d.timeout }
func (d fakeDriver) CreateSettle() time.Duration { return d.settle }

func TestDriverThatCannotWorkIsRefusedAtStartup(t *testing.T) {
	driver := func(d fakeDriver) func() (provider.Driver, error) {
		return func() (provider.Driver, error) { return d, nil }
	}
	for want, p := range map[string]Provider{
		"": {Name: "acme",
			New: driver(fakeDriver{name: "acme", timeout: time.Second, settle: time.Second})},
		"New is required": {Name: "acme"},
		"create the driver: no cloud": {Name: "acme", New: func() (provider.Driver, error) {
			return nil, errors.New("no cloud")
		}},
		`driver has the name "b", but its process`: {Name: "a",
			New: driver(fakeDriver{name: "b", timeout: time.Second, settle: time.Second})},
		`driver name "My.Cloud`: {Name: "My.Cloud",
			New: driver(fakeDriver{name: "My.Cloud", timeout: time.Second, settle: time.Second})},
		"CallTimeout 0s": {Name: "acme", New: driver(fakeDriver{name: "acme", settle: time.Second})},
		"CreateSettle -1s": {Name: "acme",
			New: driver(fakeDriver{name: "acme", timeout: time.Second, settle: -time.Second})},
	} {
		_, err := p.driver()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that contains %q", err, want)
		}
	}
}

// The process parses the driver's flags together with its own. The process creates the driver from its flags before
// the process connects to any API server, so that wrong flags are reported first.
func TestDriverFlagsAreParsedBeforeTheDriverIsCreated(t *testing.T) {
	var size string
	cmd := Command(Provider{
		Name:     "acme",
		AddFlags: func(fs *pflag.FlagSet) { fs.StringVar(&size, "acme-size", "", "") },
		New:      func() (provider.Driver, error) { return nil, errors.New("the size is " + size) },
	})
	cmd.SetArgs([]string{"--target-kubeconfig=none", "--acme-size=large"})
	if err := cmd.Execute(); err == nil || err.Error() != "create the driver: the size is large" {
		t.Errorf("got %v", err)
	}
}

func TestProviderAcceptsFlagsOfMachineControllerManager(t *testing.T) {
	for _, test := range []struct{ arg, ours, value, refused string }{
		{arg: "--machine-safety-orphan-vms-period=7m", ours: "orphan-check-period", value: "7m0s"},
		{arg: "--machine-safety-apiserver-statuscheck-period=7m", ours: "apiserver-check-period", value: "7m0s"},
		{arg: "--machine-health-timeout=7m", refused: "set --health-timeout of machinist-manager"},
		{arg: "--safety-down=1", refused: "set --overshoot-recovery of machinist-manager"},
	} {
		cmd := Command(Provider{Name: "acme"})
		err := cmd.ParseFlags([]string{test.arg})
		if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: got %v, want an error that contains %q", test.arg, err, test.refused)
		}
		if test.ours != "" && cmd.Flags().Lookup(test.ours).Value.String() != test.value {
			t.Errorf("%s does not set --%s to %s", test.arg, test.ours, test.value)
		}
	}
}

type fakeImporter struct {
	fakeDriver
	provider.Importer
}

func TestOnlyImportersHaveMigrators(t *testing.T) {
	for _, c := range []struct {
		driver provider.Driver
		want   bool
	}{{nil, false}, {fakeDriver{}, false}, {fakeImporter{}, true}} {
		found, _, _ := Command(Provider{Name: "acme", Type: c.driver}).Find([]string{"migrator"})
		if got := found.Name() == "migrator"; got != c.want {
			t.Errorf("a provider of the type %T has the command migrator: %t", c.driver, got)
		}
	}
}
