package profile

import (
	"strings"
	"testing"
)

func TestBadOptionsAreRefusedByName(t *testing.T) {
	for name, test := range map[string]struct {
		profile string
		change  func(*Options)
		want    string
	}{
		"profile":             {"arch", func(*Options) {}, `--profile "arch": must be one of debian, ubuntu`},
		"runtime":             {"debian", func(o *Options) { o.Runtime = "docker" }, `--runtime "docker"`},
		"nothing to install":  {"flatcar", func(o *Options) { o.Runtime = RuntimePackage }, "the profile flatcar installs no packages"},
		"no kubelet package":  {"flatcar", func(o *Options) { o.Kubelet = KubeletPackages }, `--kubelet "packages": the profile flatcar`},
		"kubelet":             {"debian", func(o *Options) { o.Kubelet = "snap" }, `--kubelet "snap"`},
		"no repository":       {"debian", func(o *Options) { o.PackageRepository = "" }, "--package-repository is not set"},
		"repository":          {"rhel", func(o *Options) { o.PackageRepository = "https://a/ b" }, `--package-repository "https://a/ b"`},
		"repository, script":  {"rhel", func(o *Options) { o.PackageRepository = "https://a/$(reboot)" }, `--package-repository "https://a/$(reboot)"`},
		"no key":              {"debian", func(o *Options) { o.PackageRepositoryKey = nil }, "--package-repository-key"},
		"a binary key":        {"debian", func(o *Options) { o.PackageRepositoryKey = []byte{0x99, 1} }, "--package-repository-key"},
		"no URL":              {"flatcar", func(o *Options) { o.KubeletURL = "" }, "--kubelet-url is not set"},
		"one version":         {"flatcar", func(o *Options) { o.KubeletURL = "https://a/kubelet" }, `--kubelet-url "https://a/kubelet": has no <<KUBELET_VERSION>>`},
		"unknown placeholder": {"flatcar", func(o *Options) { o.KubeletURL += "/<<ARCH>>" }, "--kubelet-url"},
		"no checksum":         {"flatcar", func(o *Options) { o.KubeletSHA256 = nil }, "--kubelet-sha256 is not set"},
		"checksum":            {"flatcar", func(o *Options) { o.KubeletSHA256["v1.36.4"] = "12" }, `--kubelet-sha256 "v1.36.4=12"`},
		"checksum's version":  {"flatcar", func(o *Options) { o.KubeletSHA256["1.36"] = testSum }, `--kubelet-sha256 "1.36=`},
		"of another source":   {"debian", func(o *Options) { o.KubeletSHA256 = map[string]string{"v1.36.3": testSum} }, "--kubelet-sha256: goes with --kubelet url"},
		"binary":              {"preinstalled", func(o *Options) { o.KubeletBinary = "kubelet" }, `--kubelet-binary "kubelet"`},
		"mirror":              {"debian", func(o *Options) { o.Mirrors = []Mirror{{"https://docker.io", "https://m"}} }, `--registry-mirror "https://docker.io=https://m"`},
		"mirror's URL":        {"debian", func(o *Options) { o.Mirrors = []Mirror{{"docker.io", "m"}} }, `--registry-mirror docker.io "m"`},
		"mirror twice":        {"debian", func(o *Options) { o.Mirrors = []Mirror{{"a", "http://m"}, {"a", "http://m"}} }, "is given twice"},
		"proxy":               {"debian", func(o *Options) { o.HTTPProxy = "http://a\nb" }, `--http-proxy "http://a\nb"`},
		"no scheme":           {"debian", func(o *Options) { o.HTTPSProxy = "user:geheim@proxy" }, `--https-proxy "***@proxy"`},
		"no proxy":            {"debian", func(o *Options) { o.NoProxy = "10.0.0.0/8" }, "--no-proxy"},
		"SSH key":             {"debian", func(o *Options) { o.SSHKeys = []string{"-----BEGIN geheim geheim geheim"} }, `--ssh-key "-----BEGIN geheim ge…"`},
		"SSH key, two lines":  {"debian", func(o *Options) { o.SSHKeys = []string{testKey + "\nruncmd: [reboot]"} }, "--ssh-key"},
		"SSH key with token":  {"debian", func(o *Options) { o.SSHKeys = []string{testKey + "<<BOOTSTRAP_TOKEN>>"} }, "--ssh-key"},
		"DNS":                 {"debian", func(o *Options) { o.ClusterDNS = []string{"dns.example"} }, `--cluster-dns "dns.example"`},
		"DNS twice": {"debian", func(o *Options) {
			o.ClusterDNS, o.KubeletConfig = []string{"10.0.0.1"}, []byte("clusterDNS: [10.0.0.2]")
		},
			"--kubelet-config has clusterDNS, too"},
		"feature": {"debian", func(o *Options) { o.FeatureGates = map[string]bool{"a b": true} }, `--feature-gates "a b"`},
		"feature twice": {"debian", func(o *Options) {
			o.FeatureGates, o.KubeletConfig = map[string]bool{"A": true}, []byte("featureGates: {A: false}")
		}, "--feature-gates A"},
		"feature off": {"debian", func(o *Options) { o.FeatureGates = map[string]bool{"RotateKubeletServerCertificate": false} }, "featureGates.RotateKubeletServerCertificate"},
		"client CA":   {"debian", func(o *Options) { o.ClientCA = []byte("geheim") }, "--client-ca: the file has no certificate"},
		"client CA with a key": {"debian", func(o *Options) {
			o.ClientCA = []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
		}, `a block "PRIVATE KEY"`},
		"file":                 {"debian", func(o *Options) { o.Files = []File{{Path: "etc/a"}} }, `--file "etc/a"`},
		"file with dots":       {"debian", func(o *Options) { o.Files = []File{{Path: "/etc/../a"}} }, `--file "/etc/../a"`},
		"file of the profile":  {"debian", func(o *Options) { o.Files = []File{{Path: kubeconfigPath}} }, "writes this file itself"},
		"unit as a file":       {"debian", func(o *Options) { o.Files = []File{{Path: "/etc/systemd/system/kubelet.service"}} }, "writes this file itself"},
		"file twice":           {"debian", func(o *Options) { o.Files = []File{{Path: "/a"}, {Path: "/a"}} }, "--file /a"},
		"binary placeholder":   {"debian", func(o *Options) { o.Files = []File{{Path: "/a", Content: []byte("<<API_ENDPOINT>>\x00")}} }, "--file /a: it has a placeholder and is not text"},
		"unit's name":          {"debian", func(o *Options) { o.Units = []Unit{{Name: "../a.service"}} }, `--unit "../a.service"`},
		"unit of the profile":  {"debian", func(o *Options) { o.Units = []Unit{{"kubelet.service", []byte("a")}} }, "--unit kubelet.service"},
		"empty unit":           {"debian", func(o *Options) { o.Units = []Unit{{Name: "a.service"}} }, "--unit a.service: the file is empty"},
		"unit never started":   {"debian", func(o *Options) { o.Units = []Unit{{"a.service", []byte("[Service]\n")}} }, "--unit a.service: it has no section [Install]"},
		"unit with the token":  {"debian", func(o *Options) { o.Units = []Unit{{"a.service", []byte("<<BOOTSTRAP_TOKEN>>")}} }, "--unit a.service"},
		"no server":            {"rke2", func(o *Options) { o.Server = "" }, "--server is not set"},
		"server":               {"k3s", func(o *Options) { o.Server = "https://a b" }, `--server "https://a b"`},
		"server without TLS":   {"rke2", func(o *Options) { o.Server = "http://a:9345" }, `--server "http://a:9345": must begin with https://`},
		"server's password":    {"k3s", func(o *Options) { o.Server = "https://user:geheim@a" }, `--server "https://***@a"`},
		"server elsewhere":     {"kubeadm", func(o *Options) { o.Server = "https://a" }, `--server "https://a": goes with the profiles k3s and rke2`},
		"agent of the profile": {"k3s", func(o *Options) { o.Units = []Unit{{"k3s-agent.service", []byte("[Install]\n")}} }, "--unit k3s-agent.service"},
		"agent's file":         {"rke2", func(o *Options) { o.Files = []File{{Path: "/etc/rancher/rke2/config.yaml"}} }, "writes this file itself"},
		"kubeadm's file":       {"kubeadm", func(o *Options) { o.Files = []File{{Path: joinConfigPath}} }, "writes this file itself"},
	} {
		t.Run(name, func(t *testing.T) {
			o := least(test.profile)
			test.change(&o)
			_, err := Render(o)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "geheim geheim geheim") ||
				strings.Contains(err.Error(), ":geheim") {
				t.Errorf("got the error %v, want %q", err, test.want)
			}
		})
	}
}

func TestOptionsOfTheKubeletAreRefusedWhereItIsNotConfigured(t *testing.T) {
	reasons := map[string]string{
		"kubeadm": "kubeadm takes the kubelet's settings from the cluster's kubelet-config",
		"k3s":     "the settings in /etc/rancher/k3s",
		"rke2":    "the settings in /etc/rancher/rke2",
	}
	for flag, change := range map[string]func(*Options){
		`--kubelet "preinstalled"`:          func(o *Options) { o.Kubelet = KubeletPreinstalled },
		`--kubelet-url "https://***@a"`:     func(o *Options) { o.KubeletURL = "https://user:geheim@a" },
		`--kubelet-sha256 "[v1.36.3]"`:      func(o *Options) { o.KubeletSHA256 = map[string]string{"v1.36.3": testSum} },
		`--kubelet-binary "/kubelet"`:       func(o *Options) { o.KubeletBinary = "/kubelet" },
		`--package-repository "https://a/"`: func(o *Options) { o.PackageRepository = "https://a/" },
		`--package-repository-key`:          func(o *Options) { o.PackageRepositoryKey = []byte(pgpKey) },
		`--kubelet-config`:                  func(o *Options) { o.KubeletConfig = []byte{} },
		`--feature-gates "[A B]"`:           func(o *Options) { o.FeatureGates = map[string]bool{"B": true, "A": false} },
		`--cluster-dns "[10.0.0.1]"`:        func(o *Options) { o.ClusterDNS = []string{"10.0.0.1"} },
		`--client-ca`:                       func(o *Options) { o.ClientCA = []byte(sampleCA) },
	} {
		for name, reason := range reasons {
			o := least(name)
			change(&o)
			_, err := Render(o)
			if err == nil || !strings.HasPrefix(err.Error(), flag+": the profile "+name+" ") || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s with %s: got the error %v", name, flag, err)
			}
		}
	}
	for name := range reasons {
		o := least(name)
		o.Runtime = RuntimePackage
		if _, err := Render(o); err == nil || !strings.Contains(err.Error(), `--runtime "package": the profile `+name) {
			t.Errorf("%s with --runtime package: got the error %v", name, err)
		}
	}
}
