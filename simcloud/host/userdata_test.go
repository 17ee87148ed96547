package host

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/simcloud"
)

var testCA = sync.OnceValue(func() []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
})

func gzipped(text string) string {
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	_, _ = w.Write([]byte(text)) // Writes to memory do not fail.
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(buffer.Bytes())
}

func TestUserData(t *testing.T) {
	for name, test := range map[string]struct {
		data  string
		want  string // expected files in the form path=content
		notes int
		err   string
	}{
		"plain":         {"#cloud-config\nwrite_files: [{path: /a, content: x, permissions: '0600', owner: root}]\nruncmd: [ls]", "/a=x", 0, ""},
		"text with BOM": {"\xef\xbb\xbf#cloud-config\r\nwrite_files:\n- {path: /a, content: \"x\\n\"}", "/a=x\n", 0, ""},
		"base64":        {"#cloud-config\nwrite_files: [{path: /a, encoding: b64, content: eA==}]", "/a=x", 0, ""},
		"base64 in lines": {"#cloud-config\nwrite_files:\n- path: /a\n  encoding: base64\n  content: |\n    eH\n    h4",
			"/a=xxx", 0, ""},
		"gzip": {"#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: " + gzipped("hello") +
			"}]", "/a=hello", 0, ""},
		"append": {"#cloud-config\nwrite_files: [{path: /a, content: x},{path: /a, content: z, append: true}]",
			"/a=xz", 0, ""},
		"the last wins": {"#cloud-config\nwrite_files: [{path: /a, content: x},{path: //a, content: z}]", "/a=z", 0, ""},
		"bad entries":   {"#cloud-config\nwrite_files: [{path: a}, 7, {path: /b, encoding: rot13}, {path: /c, content: [1]}, {path: /ok, content: x}]", "/ok=x", 4, ""},
		"bad gzip":      {"#cloud-config\nwrite_files: [{path: /b, encoding: gz+b64, content: eA==},{path: /c, encoding: b64, content: '!'}]", "", 2, ""},
		"gzip content that is too large": {"#cloud-config\nwrite_files: [{path: /b, encoding: gz+b64, content: " +
			gzipped(strings.Repeat("x", 8<<20)) + "}]", "", 1, ""},
		"nothing to do":      {"#cloud-config\n", "", 0, ""},
		"empty":              {" \n", "", 0, "no user data"},
		"a script":           {"#!/bin/sh\nrm -rf /", "", 0, "#cloud-config"},
		"similar first line": {"#cloud-config-archive\n", "", 0, "#cloud-config"},
		"not YAML":           {"#cloud-config\nwrite_files: [", "", 0, "not a cloud-config"},
		"another type":       {"#cloud-config\nwrite_files: {a: b}", "", 0, "not a cloud-config"},
		"exploding aliases":  {"#cloud-config\n" + bomb(), "", 0, "not a cloud-config"},
		"recursive anchor":   {"#cloud-config\nwrite_files: &a [*a]", "", 0, "not a cloud-config"},
	} {
		t.Run(name, func(t *testing.T) {
			got, notes, err := parseUserData([]byte(test.data))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, name := range got.names() {
				all = append(all, name+"="+string(got[name]))
			}
			if strings.Join(all, " ") != test.want || len(notes) != test.notes {
				t.Errorf("got %q, notes %q", all, notes)
			}
		})
	}
}

// bomb returns YAML with aliases that would expand to gigabytes.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		alias := fmt.Sprintf("*a%d,", i-1)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(alias, 9), ","))
	}
	return b.String()
}

// kubeconfig returns a valid kubeconfig with extra lines in its cluster and its user.
func kubeconfig(inCluster, inUser string) string {
	return `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}, {name: d, context: {cluster: k2, user: u2}}]
clusters:
- name: k
  cluster:
    server: https://127.0.0.1:6443
    certificate-authority-data: ` + base64.StdEncoding.EncodeToString(testCA()) + `
` + inCluster + `
- name: k2
  cluster: {server: "http://ignored", insecure-skip-tls-verify: true}
users:
- name: u
  user:
    token: abcdef.0123456789abcdef
` + inUser + `
- name: u2
  user: {exec: {command: ignored}}
`
}

func cloudConfig(pairs ...string) []byte {
	var b strings.Builder
	b.WriteString("#cloud-config\nwrite_files:\n")
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "- path: %s\n  encoding: b64\n  content: %s\n", pairs[i],
			base64.StdEncoding.EncodeToString([]byte(pairs[i+1])))
	}
	return []byte(b.String())
}

func TestBootstrap(t *testing.T) {
	b, notes, err := parseBootstrap(Spec{UserData: cloudConfig(
		pathKubeconfig, kubeconfig("", ""),
		pathKubeletConfig, `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
registerWithTaints: [{key: example.com/uninitialized, effect: NoSchedule}]
nodeStatusUpdateFrequency: 20s
nodeLeaseDurationSeconds: 8
maxPods: 7
`,
		pathDefaults, `# comment
KUBELET_VERSION=v1.35.1
KUBELET_EXTRA_ARGS="--node-labels=a=b,example.com/c=d,node.kubernetes.io/e= --v=4 --node-labels f=g"
`)})
	if err != nil {
		t.Fatal(err)
	}
	if b.server != "https://127.0.0.1:6443" || b.token != "abcdef.0123456789abcdef" || b.version != "v1.35.1" ||
		b.leaseDuration != 8*time.Second || b.statusCheck != 20*time.Second || b.statusReport != 20*time.Second ||
		fmt.Sprint(b.labels) != "map[a:b example.com/c:d f:g node.kubernetes.io/e:]" ||
		!slices.Equal(b.taints, []corev1.Taint{{Key: "example.com/uninitialized", Effect: corev1.TaintEffectNoSchedule}}) {
		t.Errorf("got %+v", b)
	}
	if all := strings.Join(notes, "\n"); !strings.Contains(all, "--v=4") || strings.Contains(all, b.token) {
		t.Errorf("notes: %s", all)
	}
}

func TestStatusFrequencies(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "10s 5m0s",
		"nodeStatusUpdateFrequency: 20s": "20s 20s",
		"nodeStatusReportFrequency: 1m":  "10s 1m0s",
		"{nodeStatusUpdateFrequency: 1ms, nodeStatusReportFrequency: 1m}": "1s 1m0s",
		"nodeStatusUpdateFrequency: 0s":                                   "10s 5m0s",
	} {
		config := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
			strings.NewReplacer("{", "", "}", "", ", ", "\n").Replace(text)
		b, _, err := parseBootstrap(Spec{UserData: cloudConfig(pathKubeconfig, kubeconfig("", ""),
			pathKubeletConfig, config)})
		if err != nil {
			t.Error(err)
		} else if got := fmt.Sprint(b.statusCheck, " ", b.statusReport); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestKubeletVersionPrecedence(t *testing.T) {
	for _, test := range []struct {
		requested, file, defaults, image, want string
	}{
		{"v1.1.1", "v1.2.2", "v1.3.3", "v1.4.4", "v1.1.1"},
		{"", " v1.2.2\n", "v1.3.3", "v1.4.4", "v1.2.2"},
		{"", "", "1.3.3", "v1.4.4", "v1.3.3"},
		{"", "", "", "v1.4.4", "v1.4.4"},
		{"", "", "", "", defaultKubeletVersion},
		{"", "", "latest", "", ""},
	} {
		b, _, err := parseBootstrap(Spec{
			KubeletVersion: test.requested, Image: simcloud.Image{KubeletVersion: test.image},
			UserData: cloudConfig(pathKubeconfig, kubeconfig("", ""), pathVersion, test.file, pathDefaults, "KUBELET_VERSION='"+
				test.defaults+"'"),
		})
		if test.want == "" {
			if err == nil || !strings.Contains(err.Error(), "latest") {
				t.Errorf("%+v: %v", test, err)
			}
		} else if err != nil || b.version != test.want {
			t.Errorf("%+v: got %+v %v", test, b, err)
		}
	}
}

func TestInvalidBootstrapData(t *testing.T) {
	ok := kubeconfig("", "")
	with := func(old, new string) string {
		if !strings.Contains(ok, old) {
			t.Fatalf("%q is not in the kubeconfig", old)
		}
		return strings.ReplaceAll(ok, old, new)
	}
	kubelet := func(text string) []string {
		return []string{pathKubeconfig, ok, pathKubeletConfig,
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + text}
	}
	args := func(text string) []string {
		return []string{pathKubeconfig, ok, pathDefaults, "KUBELET_EXTRA_ARGS=" + text}
	}
	for mention, files := range map[string][]string{
		"user data has no /etc/kubernetes":   {"/etc/motd", "hello"},
		"exec":                               {pathKubeconfig, kubeconfig("", "    exec: {command: /bin/sh}")},
		"auth-provider":                      {pathKubeconfig, kubeconfig("", "    auth-provider: {name: gcp}")},
		"tokenFile":                          {pathKubeconfig, kubeconfig("", "    tokenFile: /etc/shadow")},
		"the field client-certificate is":    {pathKubeconfig, kubeconfig("", "    client-certificate: /a")},
		"client-key-data":                    {pathKubeconfig, kubeconfig("", "    client-key-data: YQ==")},
		"username":                           {pathKubeconfig, kubeconfig("", "    username: root")},
		"the field as is":                    {pathKubeconfig, kubeconfig("", "    as: system:admin")},
		"insecure-skip-tls-verify":           {pathKubeconfig, kubeconfig("    insecure-skip-tls-verify: true", "")},
		"the field certificate-authority is": {pathKubeconfig, kubeconfig("    certificate-authority: /etc/ssl/ca", "")},
		"proxy-url":                          {pathKubeconfig, kubeconfig("    proxy-url: http://evil", "")},
		"must be an https URL":               {pathKubeconfig, with("https://127", "http://127")},
		"user:pw":                            {pathKubeconfig, with("https://127", "https://user:pw@127")},
		"the kind is":                        {pathKubeconfig, with("kind: Config", "kind: Secret")},
		"does not refer to a cluster":        {pathKubeconfig, with("current-context: c", "current-context: x")},
		"does not refer to a user":           {pathKubeconfig, with("user: u}", "user: nobody}")},
		"characters":                         {pathKubeconfig, with("abcdef.0123456789abcdef", `"a\nb"`)},
		"the content is not base64": {pathKubeconfig,
			with("certificate-authority-data: ", "certificate-authority-data: '!' #")},
		"not a certificate": {pathKubeconfig,
			with("certificate-authority-data: ", "certificate-authority-data: eA== #")},
		"the field server must be text":  {pathKubeconfig, with("https://127.0.0.1:6443", "{}")},
		"parse":                          {pathKubeconfig, "clusters: 7"},
		"bootstrap-kubeconfig: the kind": {pathKubeconfig, ""},
		"the type is v1 KubeletConfiguration": {pathKubeconfig, ok, pathKubeletConfig,
			"apiVersion: v1\nkind: KubeletConfiguration"},
		"nodeLeaseDurationSeconds":        kubelet("nodeLeaseDurationSeconds: -1"),
		"nodeStatusUpdateFrequency":       kubelet("nodeStatusUpdateFrequency: 10 minutes"),
		"config.yaml: parse":              kubelet("registerWithTaints: yes please"),
		"is not a valid label":            args("--node-labels=/=x"),
		"must not set \"node-role":        args("--node-labels=node-role.kubernetes.io/control-plane="),
		"must not set \"node-restriction": args("--node-labels=node-restriction.kubernetes.io/a=b"),
		"must not set \"k8s.io":           args("--node-labels=k8s.io/a=b"),
	} {
		_, _, err := parseBootstrap(Spec{UserData: cloudConfig(files...)})
		if err == nil || !strings.Contains(err.Error(), mention) {
			t.Errorf("got %v, want an error with %q", err, mention)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("the error contains the token: %v", err)
		}
	}
}

// FuzzBootstrap checks that all user data leads either to a bootstrap or to an error.
func FuzzBootstrap(f *testing.F) {
	f.Add(cloudConfig(pathKubeconfig, kubeconfig("", ""), pathDefaults, "KUBELET_EXTRA_ARGS=--node-labels=a=b"))
	f.Add([]byte("#cloud-config\nwrite_files: [{path: /a, encoding: gz, content: \"\\x1f\\x8b\"}]"))
	f.Add([]byte("#cloud-config\n" + bomb()))
	f.Add([]byte("#cloud-config\nwrite_files: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, _, err := parseBootstrap(Spec{UserData: data})
		if (b == nil) == (err == nil) {
			t.Errorf("got %v and the error %v", b, err)
		}
	})
}

// FuzzBootstrapParts passes the files directly, without a cloud-config and base64 around them.
func FuzzBootstrapParts(f *testing.F) {
	f.Add(kubeconfig("", ""),
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nregisterWithTaints: [{key: a, effect: NoSchedule, timeAdded: null}]", "--node-labels=a=b --node-labels c=d --node-labels")
	f.Fuzz(func(t *testing.T, kubeconfig, config, args string) {
		b := &bootstrap{labels: map[string]string{}}
		if b.readKubeconfig([]byte(kubeconfig)) == nil && (b.server == "" || b.token == "" || len(b.caPEM) == 0) {
			t.Errorf("accepted a kubeconfig without server, token or CA: %+v", b)
		}
		_ = b.readKubeletConfig([]byte(config)) // readKubeletConfig must not panic
		if _, err := b.readExtraArgs(args); err == nil {
			for key := range b.labels {
				if !kubeletMaySet(key) {
					t.Errorf("accepted the label %q", key)
				}
			}
		}
	})
}
