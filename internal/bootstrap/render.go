package bootstrap

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Placeholders of a user-data template. Anything else of the form <<NAME>> is an error, so that a misspelt placeholder
// is found before an instance is paid for.
const (
	MachineName      = "MACHINE_NAME"
	MachineNamespace = "MACHINE_NAMESPACE"
	KubeletVersion   = "KUBELET_VERSION"
	APIEndpoint      = "API_ENDPOINT"
	CABundleBase64   = "CA_BUNDLE_BASE64"
	BootstrapToken   = "BOOTSTRAP_TOKEN"
)

// placeholder matches the form, whatever the name: upper case, as all of ours are, so that a here-document ("<<EOF" has
// no closing brackets) or a C++ stream in a script is left alone. Its second alternative is the same URL-encoded, as it
// is in the data URLs of Ignition.
var placeholder = regexp.MustCompile(`<<([A-Z][A-Z0-9_]*)>>|%3[Cc]%3[Cc]([A-Z][A-Z0-9_]*)%3[Ee]%3[Ee]`)

// Values are what the placeholders stand for.
type Values struct {
	MachineName      string
	MachineNamespace string
	KubeletVersion   string
	// APIEndpoint is the URL of the target cluster's API server as instances reach it.
	APIEndpoint string
	// CABundle is the PEM bundle that verifies APIEndpoint.
	CABundle []byte
	// BootstrapToken is "id.secret"; only asked for by templates for which NeedsToken is true.
	BootstrapToken string
}

// NeedsToken reports whether the template contains the placeholder for a bootstrap token.
func NeedsToken(template []byte) bool {
	for _, match := range placeholder.FindAll(template, -1) {
		if name, _ := nameIn(match); name == BootstrapToken {
			return true
		}
	}
	return false
}

// nameIn returns the name in a placeholder, and whether it is URL-encoded.
func nameIn(match []byte) (name string, encoded bool) {
	groups := placeholder.FindSubmatch(match)
	return string(groups[1]) + string(groups[2]), groups[2] != nil
}

// Render replaces every placeholder of the template in one pass: a value that happens to look like a placeholder
// stays as it is. The value of a URL-encoded placeholder is URL-encoded. It fails on an unknown placeholder, naming it,
// and on one whose value is empty.
func Render(template []byte, v Values) ([]byte, error) {
	values := map[string]string{
		MachineName:      v.MachineName,
		MachineNamespace: v.MachineNamespace,
		KubeletVersion:   v.KubeletVersion,
		APIEndpoint:      v.APIEndpoint,
		CABundleBase64:   base64.StdEncoding.EncodeToString(v.CABundle),
		BootstrapToken:   v.BootstrapToken,
	}
	var unknown, empty []string
	out := placeholder.ReplaceAllFunc(template, func(match []byte) []byte {
		name, encoded := nameIn(match)
		value, known := values[name]
		switch {
		case !known:
			unknown = append(unknown, string(match))
		case value == "":
			empty = append(empty, string(match))
		}
		if encoded {
			value = urlEncoded(value)
		}
		return []byte(value)
	})
	if len(unknown) > 0 {
		return nil, fmt.Errorf("user data contains the unknown placeholder %s; known are <<%s>>", list(unknown),
			strings.Join([]string{MachineName, MachineNamespace, KubeletVersion, APIEndpoint, CABundleBase64, BootstrapToken},
				">>, <<"))
	}
	if len(empty) > 0 {
		return nil, fmt.Errorf("user data contains %s, for which this machine has no value", list(empty))
	}
	return out, nil
}

// urlEncoded encodes a value for a data URL as well as for a query, which alone knows + for a space.
func urlEncoded(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }

func list(names []string) string {
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
