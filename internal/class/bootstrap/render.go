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

// Names of the placeholders of user data, which are written between << and >>. All other text stays the same.
const (
	MachineName      = "MACHINE_NAME"
	MachineNamespace = "MACHINE_NAMESPACE"
	KubeletVersion   = "KUBELET_VERSION"
	APIEndpoint      = "API_ENDPOINT"
	CABundleBase64   = "CA_BUNDLE_BASE64"
	BootstrapToken   = "BOOTSTRAP_TOKEN"
	// KubeadmJoinConfig is the placeholder for a JoinConfiguration of kubeadm. The value of the placeholder is JSON
	// in a single line.
	KubeadmJoinConfig = "KUBEADM_JOIN_CONFIG"
)

// Placeholders returns the names of all placeholders.
func Placeholders() []string {
	return []string{MachineName, MachineNamespace, KubeletVersion, APIEndpoint, CABundleBase64, BootstrapToken,
		KubeadmJoinConfig}
}

// placeholder matches only known placeholders, because a script may contain similar text such as cat <<EOF>>FILE. The
// second alternative matches URL-encoded placeholders, as in Ignition's data URLs. Exclamation marks before the name
// escape a placeholder, and Render removes one of them.
var placeholder = func() *regexp.Regexp {
	names := "(" + strings.Join(Placeholders(), "|") + ")"
	return regexp.MustCompile(`<<(!*)` + names + `>>|%3[Cc]%3[Cc]((?:!|%21)*)` + names + `%3[Ee]%3[Ee]`)
}()

// Values replace the placeholders in the user data of one machine.
type Values struct {
	MachineName      string
	MachineNamespace string
	KubeletVersion   string
	// APIEndpoint is the URL by which instances reach the API server of the target cluster.
	APIEndpoint string
	// CABundle is the PEM bundle with which clients verify APIEndpoint.
	CABundle []byte
	// BootstrapToken has the form "id.secret". If NeedsToken returns false for a template, the token may be empty.
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

type match struct {
	name string
	// encoded is true for a URL-encoded placeholder such as %3C%3CCA_BUNDLE%3E%3E. escaped is true for a placeholder
	// with an exclamation mark, which must not be replaced.
	encoded, escaped bool
}

func matchOf(text []byte) match {
	groups := placeholder.FindSubmatch(text)
	return match{name: string(groups[2]) + string(groups[4]), encoded: len(groups[4]) > 0,
		escaped: len(groups[1])+len(groups[3]) > 0}
}

// NeedsToken reports whether the template contains a placeholder whose value includes a bootstrap token.
func NeedsToken(template []byte) bool {
	return HasPlaceholder(template, BootstrapToken) || HasPlaceholder(template, KubeadmJoinConfig)
}

// HasPlaceholder reports whether the template contains the placeholder.
func HasPlaceholder(template []byte, name string) (used bool) {
	_, err := RewriteTexts(template, func(text []byte) ([]byte, error) {
		for _, found := range placeholder.FindAll(text, -1) {
			m := matchOf(found)
			used = used || m.name == name && !m.escaped
		}
		return text, nil
	})
	return used && err == nil
}

// Readable returns an error if the template cannot be decoded.
func Readable(template []byte) error {
	_, err := RewriteTexts(template, func(text []byte) ([]byte, error) { return text, nil })
	return err
}

// Check returns an error if the template cannot be rendered with the values. The bootstrap token may be missing, so
// Check can run before the token is created.
func Check(template []byte, v Values) error {
	v.BootstrapToken = "not-created-yet"
	_, err := Render(template, v)
	return err
}

// Render replaces all placeholders of the template with their values. If a value contains a placeholder, Render does
// not replace it. Values of URL-encoded placeholders are URL-encoded. If a placeholder is escaped, Render only removes
// one exclamation mark. Compressed or encoded parts are decoded, rendered and encoded again. The error says why the
// template cannot be decoded, or names the placeholders without a value.
func Render(template []byte, v Values) ([]byte, error) {
	values := v.byName()
	var empty []string
	out, err := RewriteTexts(template, func(text []byte) ([]byte, error) {
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

func unescaped(found []byte) []byte {
	mark := []byte("!")
	if !bytes.Contains(found, mark) {
		mark = []byte("%21")
	}
	return bytes.Replace(found, mark, nil, 1)
}

// urlEncoded encodes a value for a data URL or query. A space becomes %20, because only queries accept +.
func urlEncoded(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }
