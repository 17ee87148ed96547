package bootstrap

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Placeholders of a user-data template, which stand between << and >>. Anything else in a template stays as it is.
const (
	MachineName      = "MACHINE_NAME"
	MachineNamespace = "MACHINE_NAMESPACE"
	KubeletVersion   = "KUBELET_VERSION"
	APIEndpoint      = "API_ENDPOINT"
	CABundleBase64   = "CA_BUNDLE_BASE64"
	BootstrapToken   = "BOOTSTRAP_TOKEN"
	// KubeadmJoinConfig is a JoinConfiguration of kubeadm in JSON, in one line.
	KubeadmJoinConfig = "KUBEADM_JOIN_CONFIG"
)

// Placeholders returns the names of all placeholders.
func Placeholders() []string {
	return []string{MachineName, MachineNamespace, KubeletVersion, APIEndpoint, CABundleBase64, BootstrapToken,
		KubeadmJoinConfig}
}

// placeholder matches the known ones only: a script may append to a file with cat <<EOF>>FILE. Its second alternative
// is the same URL-encoded, as in the data URLs of Ignition. Exclamation marks before the name are the escape, of which
// one is taken off.
var placeholder = func() *regexp.Regexp {
	names := "(" + strings.Join(Placeholders(), "|") + ")"
	return regexp.MustCompile(`<<(!*)` + names + `>>|%3[Cc]%3[Cc]((?:!|%21)*)` + names + `%3[Ee]%3[Ee]`)
}()

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

func (v Values) byName() map[string]string {
	return map[string]string{
		MachineName:      v.MachineName,
		MachineNamespace: v.MachineNamespace,
		KubeletVersion:   v.KubeletVersion,
		APIEndpoint:      v.APIEndpoint,
		CABundleBase64:   base64.StdEncoding.EncodeToString(v.CABundle),
		BootstrapToken:   v.BootstrapToken,

		KubeadmJoinConfig: v.kubeadmJoinConfig(),
	}
}

// match is a placeholder in a text.
type match struct {
	name string
	// encoded is true for a URL-encoded one, escaped for one that is not to be replaced.
	encoded, escaped bool
}

func matchOf(text []byte) match {
	groups := placeholder.FindSubmatch(text)
	return match{name: string(groups[2]) + string(groups[4]), encoded: len(groups[4]) > 0,
		escaped: len(groups[1])+len(groups[3]) > 0}
}

// NeedsToken reports whether the template contains a placeholder whose value has a bootstrap token.
func NeedsToken(template []byte) bool {
	return Uses(template, BootstrapToken) || Uses(template, KubeadmJoinConfig)
}

// Uses reports whether the template contains the placeholder of that name.
func Uses(template []byte, name string) (used bool) {
	_, err := eachText(template, func(text []byte) ([]byte, error) {
		for _, found := range placeholder.FindAll(text, -1) {
			m := matchOf(found)
			used = used || m.name == name && !m.escaped
		}
		return text, nil
	})
	return used && err == nil
}

// Readable reports why the template cannot be rendered, whatever the values are.
func Readable(template []byte) error {
	_, err := eachText(template, func(text []byte) ([]byte, error) { return text, nil })
	return err
}

// Check reports why the template cannot be rendered with the values, whatever the bootstrap token will be, so that this
// is found before a token is created.
func Check(template []byte, v Values) error {
	v.BootstrapToken = "checked-later"
	_, err := Render(template, v)
	return err
}

// Render replaces every placeholder of the template in one pass: a value that happens to look like a placeholder
// stays as it is. The value of a URL-encoded placeholder is URL-encoded. An escaped placeholder loses its exclamation
// mark. What is compressed or encoded is rendered in its plain form and encoded again in the same way. Render fails on
// a placeholder without a value, naming it, and on a template that cannot be read.
func Render(template []byte, v Values) ([]byte, error) {
	values := v.byName()
	var empty []string
	out, err := eachText(template, func(text []byte) ([]byte, error) {
		return placeholder.ReplaceAllFunc(text, func(found []byte) []byte {
			m := matchOf(found)
			if m.escaped {
				return unescaped(found)
			}
			value := values[m.name]
			if value == "" {
				empty = append(empty, string(found))
			}
			if m.encoded {
				value = urlEncoded(value)
			}
			return []byte(value)
		}), nil
	})
	if err != nil {
		return nil, err
	}
	if len(empty) > 0 {
		slices.Sort(empty)
		return nil, fmt.Errorf("user data contains %s, for which this machine has no value",
			strings.Join(slices.Compact(empty), ", "))
	}
	return out, nil
}

// unescaped takes an exclamation mark off a placeholder.
func unescaped(found []byte) []byte {
	mark := []byte("!")
	if !bytes.Contains(found, mark) {
		mark = []byte("%21")
	}
	return bytes.Replace(found, mark, nil, 1)
}

// urlEncoded encodes a value for a data URL as well as for a query, which alone knows + for a space.
func urlEncoded(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }
