// Package version returns the version of a program, for its flag --version.
package version

import (
	"runtime/debug"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

// corePath is the module path of Machinist. Providers in other modules depend on this module.
const corePath = "machinist.dev/machinist"

// release and commit are set by release builds: go build -ldflags "-X
// machinist.dev/machinist/internal/platform/version.release=v1.2.3". Image builds set both. The Go command records the
// commit only in a clone, not in a linked working tree. The suffix "-dirty" means uncommitted changes.
var release, commit string

// API is the group and version of the API that this program uses.
const API = v1beta1.GroupName + "/" + v1beta1.Version

// Release returns the release of the running program, such as "v1.2.3", or "development".
func Release() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return name(release, info)
}

// String returns the version of the running program, such as "v1.2.3 (commit 0123456789ab, API machinist.dev/v1beta1,
// go1.26.1)".
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describe(release, commit, info)
}

// describe returns the version of a program with details from its build information. The Go command records a commit
// only for a build in a repository.
func describe(release, commit string, info *debug.BuildInfo) string {
	var details []string
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit, modified := strings.CutSuffix(commit, "-dirty")
	if commit == "" {
		commit, modified = settings["vcs.revision"], settings["vcs.modified"] == "true"
	}
	if commit != "" {
		details = append(details, "commit "+commit[:min(12, len(commit))])
		if modified {
			details = append(details, "with local changes")
		}
	}
	if info.Main.Path != corePath {
		for _, dependency := range info.Deps {
			if dependency.Path == corePath && dependency.Version != "" && dependency.Replace == nil {
				details = append(details, "machinist "+dependency.Version)
			}
		}
	}
	details = append(details, "API "+API)
	if info.GoVersion != "" {
		details = append(details, info.GoVersion)
	}
	return name(release, info) + " (" + strings.Join(details, ", ") + ")"
}

// name returns the release. Without a release, it returns the version of the main module.
func name(release string, info *debug.BuildInfo) string {
	switch {
	case release != "":
		return release
	case info.Main.Version == "" || info.Main.Version == "(devel)":
		return "development"
	default:
		return info.Main.Version
	}
}
