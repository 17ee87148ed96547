package bootstrap

import (
	"bytes"
	"encoding/base64"
	"fmt"
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
// no closing brackets) or a C++ stream in a script is left alone.
var placeholder = regexp.MustCompile(`<<[A-Z][A-Z0-9_]*>>`)

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
	return bytes.Contains(template, []byte("<<"+BootstrapToken+">>"))
}

// Render replaces every placeholder of the template in one pass: a value that happens to look like a placeholder
// stays as it is. It fails on an unknown placeholder, naming it, and on one whose value is empty.
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
		value, known := values[string(match[2:len(match)-2])]
		switch {
		case !known:
			unknown = append(unknown, string(match))
		case value == "":
			empty = append(empty, string(match))
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

func list(names []string) string {
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
