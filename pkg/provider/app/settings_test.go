package app

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Rule: bad-flags-end-process.
func TestSettingsThatCannotBeUsedAreRefusedByTheirNames(t *testing.T) {
	for flag, refused := range map[string]string{
		"":                           "",
		"--max-in-flight-creates=10": "",
		"--max-in-flight-creates=-1": "--max-in-flight-creates is -1",
		"--cloud-qps=-1":             "--cloud-qps is -1",
		"--cloud-burst=0":            "--cloud-burst is 0",
		"--concurrent-machines=0":    "--concurrent-machines is 0",
		"--bootstrap-endpoint=http:": "--bootstrap-endpoint is \"http:\"",
		"--orphan-action=report":     "",
		"--orphan-action=none":       "--orphan-action is \"none\"",
		"--orphan-max-deletes=0":     "--orphan-max-deletes is 0",
		"--orphan-min-age=-1s":       "--orphan-min-age is -1s",
		"--preserve-timeout=0":       "--preserve-timeout is 0s",
		"--preserve-limit=0":         "--preserve-limit is 0; it must be at least 1",

		"--orphan-check-period=0": "--orphan-check-period is 0s",
	} {
		s, flags := defaultSettings(), pflag.NewFlagSet("", pflag.ContinueOnError)
		s.addFlags(flags)
		if err := flags.Parse(strings.Fields(flag)); err != nil {
			t.Fatal(err)
		}
		err := s.validate()
		if (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%q: got %v, want an error that says %q", flag, err, refused)
		}
	}
}
