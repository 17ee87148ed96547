package profile

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// ignitionVersion is the newest format that all Flatcar releases since 3185 support.
const ignitionVersion = "3.3.0"

// These types hold the fields of an Ignition config that profiles use.
type (
	ignitionConfig struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
		Passwd  *ignitionPasswd `json:"passwd,omitempty"`
		Storage struct {
			Files []ignitionFile `json:"files"`
		} `json:"storage"`
		Systemd struct {
			Units []ignitionUnit `json:"units"`
		} `json:"systemd"`
	}
	ignitionPasswd struct {
		Users []ignitionUser `json:"users"`
	}
	ignitionUser struct {
		Name              string   `json:"name"`
		SSHAuthorizedKeys []string `json:"sshAuthorizedKeys"`
	}
	ignitionFile struct {
		Path      string           `json:"path"`
		Mode      int              `json:"mode"`
		Overwrite bool             `json:"overwrite"`
		Contents  ignitionContents `json:"contents"`
	}
	ignitionContents struct {
		Source string `json:"source"`
	}
	ignitionUnit struct {
		Name     string           `json:"name"`
		Enabled  bool             `json:"enabled"`
		Contents string           `json:"contents,omitempty"`
		DropIns  []ignitionDropIn `json:"dropins,omitempty"`
	}
	ignitionDropIn struct {
		Name     string `json:"name"`
		Contents string `json:"contents"`
	}
)

// ignition writes a machine as an Ignition config. Ignition has no packages or commands. Ignition needs no commands,
// because systemd starts later and reads all modules, kernel parameters and units.
func ignition(m *machine) ([]byte, error) {
	var config ignitionConfig
	config.Ignition.Version = ignitionVersion
	if len(m.sshKeys) > 0 {
		config.Passwd = &ignitionPasswd{Users: []ignitionUser{{Name: "core", SSHAuthorizedKeys: m.sshKeys}}}
	}
	files := m.files
	if m.setHostname {
		files = append(files, file{path: "/etc/hostname", mode: 0o644, text: "<<MACHINE_NAME>>\n"})
	}
	for _, f := range files {
		config.Storage.Files = append(config.Storage.Files, ignitionFile{Path: f.path, Mode: f.mode, Overwrite: true,
			Contents: ignitionContents{Source: dataURL(f)}})
	}
	// An Ignition config may contain a unit only once, so merge the drop-ins.
	at := map[string]int{}
	for _, u := range m.units {
		i, known := at[u.name]
		if !known {
			i = len(config.Systemd.Units)
			at[u.name] = i
			config.Systemd.Units = append(config.Systemd.Units, ignitionUnit{Name: u.name})
		}
		into := &config.Systemd.Units[i]
		into.Enabled = into.Enabled || u.enabled
		into.Contents += u.text
		if u.dropIn != "" {
			into.DropIns = append(into.DropIns, ignitionDropIn{Name: u.dropInName, Contents: u.dropIn})
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // < and > are part of placeholders.
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(config); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// dataURL returns the content of a file as a data URL. A text is URL-encoded with its placeholders, which makes Render
// URL-encode the values too. Base64 content is not URL-encoded, because Ignition does not URL-decode base64.
func dataURL(f file) string {
	if f.base64 {
		return "data:;base64," + f.text
	}
	return "data:," + strings.ReplaceAll(url.QueryEscape(f.text), "+", "%20")
}
