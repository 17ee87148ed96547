package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider"
)

// named is a driver of which only its name and times are asked.
type named struct {
	provider.Driver
	name            string
	timeout, settle time.Duration
}

func (n named) Name() string                { return n.name }
func (n named) CallTimeout() time.Duration  { return n.timeout }
func (n named) CreateSettle() time.Duration { return n.settle }

func TestADriverThatCannotWorkIsRefusedAtTheStart(t *testing.T) {
	driver := func(n named) func() (provider.Driver, error) {
		return func() (provider.Driver, error) { return n, nil }
	}
	for reports, p := range map[string]Provider{
		"": {Name: "acme",
			New: driver(named{name: "acme", timeout: time.Second, settle: time.Second})},
		"New is required": {Name: "acme"},
		"make the driver: no cloud": {Name: "acme", New: func() (provider.Driver, error) {
			return nil, errors.New("no cloud")
		}},
		`calls itself "b", its`: {Name: "a", New: driver(named{name: "b", timeout: time.Second, settle: time.Second})},
		`the driver's name "My.Cloud`: {Name: "My.Cloud",
			New: driver(named{name: "My.Cloud", timeout: time.Second, settle: time.Second})},
		"CallTimeout is 0s": {Name: "acme", New: driver(named{name: "acme", settle: time.Second})},
		"CreateSettle is -1s": {Name: "acme",
			New: driver(named{name: "acme", timeout: time.Second, settle: -time.Second})},
	} {
		_, err := p.driver()
		if (err == nil) != (reports == "") || err != nil && !strings.Contains(err.Error(), reports) {
			t.Errorf("got %v, want an error that says %q", err, reports)
		}
	}
}

// A provider's main calls Main with its flags beside those of the process: the driver is made from what was parsed, and
// what is wrong is said before anything is connected to.
func TestTheDriversFlagsAreParsedBeforeItIsMade(t *testing.T) {
	var size string
	cmd := Command(Provider{
		Name:     "acme",
		AddFlags: func(fs *pflag.FlagSet) { fs.StringVar(&size, "acme-size", "", "") },
		New:      func() (provider.Driver, error) { return nil, errors.New("the size is " + size) },
	})
	cmd.SetArgs([]string{"--target-kubeconfig=none", "--acme-size=large"})
	if err := cmd.Execute(); err == nil || err.Error() != "make the driver: the size is large" {
		t.Errorf("got %v", err)
	}
}
