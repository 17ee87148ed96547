package profile

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"machinist.dev/machinist/internal/class/bootstrap"
)

// FuzzOptionValues checks that the value of an option either causes an error or changes only the content of files. The
// value must not add keys, files, commands or units.
func FuzzOptionValues(f *testing.F) {
	for i := range Names() {
		for _, value := range []string{"", "https://a.example", "a\nruncmd: [reboot]", "\"]}", "<<MACHINE_NAME>>", "%3C%3CX%3E%3E",
			testKey, "10.0.0.1", "a: b\n", "\t- x\r\n", "maxPods: 7", "\u2028", "\x00\xff", "'; reboot #", "$(reboot)"} {
			f.Add(i, value)
		}
	}
	f.Fuzz(func(t *testing.T, which int, value string) {
		name := Names()[uint(which)%uint(len(Names()))]
		for flag, set := range map[string]struct {
			value, harmless func(*Options)
		}{
			"proxy":   {func(o *Options) { o.HTTPProxy = value }, func(o *Options) { o.HTTPProxy = "http://a" }},
			"noproxy": {func(o *Options) { o.HTTPProxy, o.NoProxy = "http://a", value }, func(o *Options) { o.HTTPProxy = "http://a" }},
			"mirror": {func(o *Options) { o.Mirrors = []Mirror{{"docker.io", value}} },
				func(o *Options) { o.Mirrors = []Mirror{{"docker.io", "http://a"}} }},
			"key":     {func(o *Options) { o.SSHKeys = []string{value} }, func(o *Options) { o.SSHKeys = []string{testKey} }},
			"kubelet": {func(o *Options) { o.KubeletConfig = []byte(value) }, func(*Options) {}},
			"file": {func(o *Options) { o.Files = []File{{Path: "/a", Content: []byte(value)}} },
				func(o *Options) { o.Files = []File{{Path: "/a"}} }},
			"unit": {func(o *Options) { o.Units = []Unit{{"a.service", []byte(value + "\n[Install]\n")}} },
				func(o *Options) { o.Units = []Unit{{"a.service", []byte("[Install]\n")}} }},
			"repository": {func(o *Options) { o.PackageRepository = value }, func(*Options) {}},
			"server":     {func(o *Options) { o.Server = value }, func(*Options) {}},
			"url":        {func(o *Options) { o.KubeletURL = value }, func(*Options) {}},
		} {
			o, baseline := minimalOptions(name), minimalOptions(name)
			set.value(&o)
			set.harmless(&baseline)
			got, err := Render(o)
			if err != nil || o.HTTPProxy == "" && flag == "proxy" || flag == "url" && name != "flatcar" ||
				flag == "repository" && baseline.PackageRepository == "" {
				continue // The value is refused, empty, or not used by the profile.
			}
			want, err := Render(baseline)
			if err != nil {
				t.Fatal(err)
			}
			if paths, wanted := paths(t, name, got), paths(t, name, want); !slices.Equal(paths, wanted) {
				t.Errorf("%s %q of %s writes the files\n%v\nwant\n%v", flag, value, name, paths, wanted)
			}
		}
	})
}

func paths(t *testing.T, profile string, template []byte) []string {
	data, err := bootstrap.Render(template, values)
	if err != nil {
		t.Fatal(err)
	}
	if profile == "flatcar" {
		// Ignition's parser would also validate the content of units, which is up to the user.
		var config ignitionConfig
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&config); err != nil {
			t.Fatalf("%v in:\n%s", err, data)
		}
		var out []string
		for _, f := range config.Storage.Files {
			out = append(out, f.Path)
		}
		for _, u := range config.Systemd.Units {
			out = append(out, u.Name)
		}
		return out
	}
	config, disk := readCloudConfig(t, data)
	out := slices.Sorted(maps.Keys(disk))
	for _, command := range config.RunCmd {
		out = append(out, command...)
	}
	return out
}
