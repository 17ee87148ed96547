package version

import (
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	checkout := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"},
		{Key: "vcs.modified", Value: "false"}}
	changed := []debug.BuildSetting{checkout[0], {Key: "vcs.modified", Value: "true"}}
	for _, test := range []struct {
		name, release, commit string
		info                  debug.BuildInfo
		want                  string
	}{
		{"nothing is known", "", "", debug.BuildInfo{}, "development (API machinist.dev/v1beta1)"},
		{"a release", "v1.2.3", "", debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Path: corePath, Version: "(devel)"},
			Settings: checkout},
			"v1.2.3 (commit 0123456789ab, API machinist.dev/v1beta1, go1.26.1)"},
		{"a checkout with changes", "", "",
			debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Path: corePath, Version: "(devel)"}, Settings: changed},
			"development (commit 0123456789ab, with local changes, API machinist.dev/v1beta1, go1.26.1)"},
		{"an image", "v1.2.3", "fedcba9876543210", debug.BuildInfo{}, "v1.2.3 (commit fedcba987654, API machinist.dev/v1beta1)"},
		{"an image of a checkout with changes", "v1.2.3", "fedcba9876543210-dirty", debug.BuildInfo{Settings: checkout},
			"v1.2.3 (commit fedcba987654, with local changes, API machinist.dev/v1beta1)"},
		{"installed as a module", "", "", debug.BuildInfo{Main: debug.Module{Path: corePath, Version: "v1.2.3"}}, "v1.2.3 (API machinist.dev/v1beta1)"},
		{"a provider in another module", "", "",
			debug.BuildInfo{Main: debug.Module{Path: "example.com/provider", Version: "v0.1.0"},
				Deps: []*debug.Module{{Path: "example.com/other", Version: "v9.9.9"}, {Path: corePath, Version: "v1.2.3"}}},
			"v0.1.0 (machinist v1.2.3, API machinist.dev/v1beta1)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := describe(test.release, test.commit, &test.info); got != test.want {
				t.Errorf("describe() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestStringOfTheRunningProgram(t *testing.T) {
	if String() == "" {
		t.Error("String() is empty")
	}
}
