package bootstrap

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Rule: user-data-one-pass.
func TestRender(t *testing.T) {
	values := Values{
		MachineName: "pool-a1b2c", MachineNamespace: "fleet", KubeletVersion: "v1.36.3",
		APIEndpoint: "https://api.example:6443", CABundle: []byte("PEM"), BootstrapToken: "abcdef.0123456789abcdef",
	}
	for _, tc := range []struct {
		name, template string
		values         Values
		want, wantErr  string
	}{
		{"all placeholders",
			"<<MACHINE_NAMESPACE>>/<<MACHINE_NAME>> <<KUBELET_VERSION>> <<API_ENDPOINT>> <<CA_BUNDLE_BASE64>> <<BOOTSTRAP_TOKEN>>",
			values, "fleet/pool-a1b2c v1.36.3 https://api.example:6443 UEVN abcdef.0123456789abcdef", ""},
		{"the same placeholder twice", "<<MACHINE_NAME>> <<MACHINE_NAME>>", values, "pool-a1b2c pool-a1b2c", ""},
		{"no placeholder, but similar text", "cat <<EOF\n${X} {{.Y}} << MACHINE_NAME >> <<lower>> a<<b>>c\nEOF ü 漢",
			values,
			"cat <<EOF\n${X} {{.Y}} << MACHINE_NAME >> <<lower>> a<<b>>c\nEOF ü 漢", ""},
		{"an unknown placeholder stays", "<<MACHINE_NAME>> <<MACHINE_NAM>>", values, "pool-a1b2c <<MACHINE_NAM>>", ""},
		{"a here-document that is appended to a file", "cat <<EOF>>/etc/hosts\n10.0.0.1 <<MACHINE_NAME>>\nEOF", values,
			"cat <<EOF>>/etc/hosts\n10.0.0.1 pool-a1b2c\nEOF", ""},
		{"an escaped placeholder loses its mark", "<<!MACHINE_NAME>> %3C%3C!MACHINE_NAME%3E%3E %3C%3C%21MACHINE_NAME%3e%3e", values,
			"<<MACHINE_NAME>> %3C%3CMACHINE_NAME%3E%3E %3C%3CMACHINE_NAME%3e%3e", ""},
		{"an escaped placeholder needs no value", "<<!KUBELET_VERSION>>", Values{MachineName: "m"}, "<<KUBELET_VERSION>>", ""},
		{"an escaped unknown placeholder stays", "<<!EOF>>", values, "<<!EOF>>", ""},
		{"the error names a placeholder without a value", "<<KUBELET_VERSION>>", Values{MachineName: "m"}, "",
			"contains <<KUBELET_VERSION>>, for which this machine has no value"},
		{"a placeholder in a value is not replaced", "<<MACHINE_NAME>>", Values{MachineName: "<<BOOTSTRAP_TOKEN>>",
			BootstrapToken: "secret"}, "<<BOOTSTRAP_TOKEN>>", ""},
		{"URL-encoded", "data:,%3C%3CMACHINE_NAME%3E%3E%20%3c%3cCA_BUNDLE_BASE64%3e%3e%20<<MACHINE_NAME>>",
			Values{MachineName: "a", CABundle: []byte{0xfb, 0xff, 0xbf, 0}},
			"data:,a%20%2B%2F%2B%2FAA%3D%3D%20a", ""},
		{"URL-encoded space", "%3C%3CMACHINE_NAME%3E%3E", Values{MachineName: "a b"}, "a%20b", ""},
		{"half URL-encoded", "<%3CMACHINE_NAME%3E> %3C%3CMACHINE_NAME>>", values, "<%3CMACHINE_NAME%3E> %3C%3CMACHINE_NAME>>", ""},
		{"an unknown URL-encoded placeholder stays", "%3C%3CMACHINE_NAM%3E%3E", values, "%3C%3CMACHINE_NAM%3E%3E", ""},
		{"the error names a URL-encoded placeholder without a value", "%3C%3CBOOTSTRAP_TOKEN%3E%3E", Values{MachineName: "m"}, "",
			"contains %3C%3CBOOTSTRAP_TOKEN%3E%3E, for which this machine has no value"},
		{"empty", "", values, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Render([]byte(tc.template), tc.values)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error = %v, want one containing %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || string(got) != tc.want {
				t.Errorf("Render = %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// Rule: token-only-on-request.
func TestNeedsToken(t *testing.T) {
	for template, want := range map[string]bool{
		"": false, "<<MACHINE_NAME>>": false, "BOOTSTRAP_TOKEN": false, "%3C%3CMACHINE_NAME%3E%3E": false,
		"token: <<BOOTSTRAP_TOKEN>>": true, "data:,%3C%3CBOOTSTRAP_TOKEN%3E%3E": true, "%3c%3cBOOTSTRAP_TOKEN%3e%3e": true,
		"<<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>": true, "<<BOOTSTRAP_TOKEN": false, "<<!BOOTSTRAP_TOKEN>>": false,
	} {
		if got := NeedsToken([]byte(template)); got != want {
			t.Errorf("NeedsToken(%q) = %t", template, got)
		}
	}
}

// Rule: user-data-one-pass.
func FuzzRender(f *testing.F) {
	f.Add([]byte("#cloud-config <<MACHINE_NAME>> <<X>>"), "m")
	f.Add([]byte("<<<<MACHINE_NAME>>>>"), "<<MACHINE_NAME>>")
	f.Add([]byte("%3C%3CMACHINE_NAME%3E%3E"), "%3C%3CMACHINE_NAME%3E%3E")
	f.Add([]byte{0xff, '<', '<', 'A', '>', '>'}, "\x00")
	f.Fuzz(func(t *testing.T, template []byte, name string) {
		out, err := Render(template, Values{MachineName: name})
		if err != nil {
			return
		}
		if !placeholder.Match(template) && !isGzip(template) && string(out) != string(template) {
			t.Errorf("a template without placeholders was changed: %q -> %q", template, out)
		}
	})
}

// Rule: token-only-on-request.
func TestTokenIDIsStableAndWellFormed(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9]{6}$`)
	seen := map[string]string{}
	for _, uid := range []types.UID{"a", "b", "1c1ab2d4-0000-4000-8000-000000000001"} {
		for n := range int32(3) {
			for salt := range maxSalt {
				a := Attempt{UID: uid, Number: n}
				id, key := a.tokenID(salt), fmt.Sprintf("%s/%d", a, salt)
				if !form.MatchString(id) {
					t.Errorf("token id %q does not have the form that Kubernetes requires", id)
				}
				if id != a.tokenID(salt) {
					t.Errorf("the token id of %s is not stable", key)
				}
				if other, taken := seen[id]; taken {
					t.Errorf("%s and %s have the same token id %s", key, other, id)
				}
				seen[id] = key
			}
		}
	}
}
