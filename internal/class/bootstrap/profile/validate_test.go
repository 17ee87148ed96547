package profile

import (
	"strings"
	"testing"
)

func TestInvalidOptionsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		profile string
		change  func(*Options)
		want    string
	}{
		"profile":             {"arch", func(*Options) {}, `--profile "arch": must be one of debian, ubuntu`},
		"runtime":             {"debian", func(o *Options) { o.Runtime = "docker" }, `--runtime "docker"`},
		"runtime package":     {"flatcar", func(o *Options) { o.Runtime = RuntimePackage }, "the profile flatcar installs no packages"},
		"kubelet package":     {"flatcar", func(o *Options) { o.Kubelet = KubeletPackages }, `--kubelet "packages": the profile flatcar`},
		"kubelet":             {"debian", func(o *Options) { o.Kubelet = "snap" }, `--kubelet "snap"`},
		"no repository":       {"debian", func(o *Options) { o.PackageRepository = "" }, "--package-repository is not set"},
		"repository":          {"rhel", func(o *Options) { o.PackageRepository = "https://a/ b" }, `--package-repository "https://a/ b"`},
		"repository, script":  {"rhel", func(o *Options) { o.PackageRepository = "https://a/$(reboot)" }, `--package-repository "https://a/$(reboot)"`},
		"no key":              {"debian", func(o *Options) { o.PackageRepositoryKey = nil }, "--package-repository-key"},
		"a binary key":        {"debian", func(o *Options) { o.PackageRepositoryKey = []byte{0x99, 1} }, "--package-repository-key"},
		"no URL":              {"flatcar", func(o *Options) { o.KubeletURL = "" }, "--kubelet-url is not set"},
		"URL without version": {"flatcar", func(o *Options) { o.KubeletURL = "https://a/kubelet" }, `--kubelet-url "https://a/kubelet": does not contain <<KUBELET_VERSION>>`},
		"unknown placeholder": {"flatcar", func(o *Options) { o.KubeletURL += "/<<ARCH>>" }, "--kubelet-url"},
		"no checksum":         {"flatcar", func(o *Options) { o.KubeletSHA256 = nil }, "--kubelet-sha256 is not set"},
		"checksum":            {"flatcar", func(o *Options) { o.KubeletSHA256["v1.36.4"] = "12" }, `--kubelet-sha256 "v1.36.4=12"`},
		"checksum's version":  {"flatcar", func(o *Options) { o.KubeletSHA256["1.36"] = testSum }, `--kubelet-sha256 "1.36=`},
		"other source":        {"debian", func(o *Options) { o.KubeletSHA256 = map[string]string{"v1.36.3": testSum} }, "--kubelet-sha256: is valid only with --kubelet url"},
		"binary":              {"preinstalled", func(o *Options) { o.KubeletBinary = "kubelet" }, `--kubelet-binary "kubelet"`},
		"mirror":              {"debian", func(o *Options) { o.Mirrors = []Mirror{{"https://docker.io", "https://m"}} }, `--registry-mirror "https://docker.io=https://m"`},
		"mirror's URL":        {"debian", func(o *Options) { o.Mirrors = []Mirror{{"docker.io", "m"}} }, `--registry-mirror docker.io "m"`},
		"mirror twice":        {"debian", func(o *Options) { o.Mirrors = []Mirror{{"a", "http://m"}, {"a", "http://m"}} }, "is given twice"},
		"proxy":               {"debian", func(o *Options) { o.HTTPProxy = "http://a\nb" }, `--http-proxy "http://a\nb"`},
		"no scheme":           {"debian", func(o *Options) { o.HTTPSProxy = "user:hidden@proxy" }, `--https-proxy "***@proxy"`},
		"no proxy":            {"debian", func(o *Options) { o.NoProxy = "10.0.0.0/8" }, "--no-proxy"},
		"SSH key":             {"debian", func(o *Options) { o.SSHKeys = []string{"-----BEGIN hidden hidden hidden"} }, `--ssh-key "-----BEGIN hidden hi…"`},
		"SSH key, two lines":  {"debian", func(o *Options) { o.SSHKeys = []string{testKey + "\nruncmd: [reboot]"} }, "--ssh-key"},
		"SSH key with token":  {"debian", func(o *Options) { o.SSHKeys = []string{testKey + "<<BOOTSTRAP_TOKEN>>"} }, "--ssh-key"},
		"DNS":                 {"debian", func(o *Options) { o.ClusterDNS = []string{"dns.example"} }, `--cluster-dns "dns.example"`},
		"DNS twice": {"debian", func(o *Options) {
			o.ClusterDNS, o.KubeletConfig = []string{"10.0.0.1"}, []byte("clusterDNS: [10.0.0.2]")
		},
			"--kubelet-config also sets clusterDNS"},
		"feature": {"debian", func(o *Options) { o.FeatureGates = map[string]bool{"a b": true} }, `--feature-gates "a b"`},
		"feature twice": {"debian", func(o *Options) {
			o.FeatureGates, o.KubeletConfig = map[string]bool{"A": true}, []byte("featureGates: {A: false}")
		}, "--feature-gates A"},
		"feature off": {"debian", func(o *Options) { o.FeatureGates = map[string]bool{"RotateKubeletServerCertificate": false} }, "featureGates.RotateKubeletServerCertificate"},
		"client CA":   {"debian", func(o *Options) { o.ClientCA = []byte("hidden") }, "--client-ca: the file contains no PEM certificate"},
		"client CA with a key": {"debian", func(o *Options) {
			o.ClientCA = []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
		}, `a block "PRIVATE KEY"`},
		"file":                 {"debian", func(o *Options) { o.Files = []File{{Path: "etc/a"}} }, `--file "etc/a"`},
		"file with dots":       {"debian", func(o *Options) { o.Files = []File{{Path: "/etc/../a"}} }, `--file "/etc/../a"`},
		"file of the profile":  {"debian", func(o *Options) { o.Files = []File{{Path: kubeconfigPath}} }, "already writes this file"},
		"unit as a file":       {"debian", func(o *Options) { o.Files = []File{{Path: "/etc/systemd/system/kubelet.service"}} }, "already writes this file"},
		"file twice":           {"debian", func(o *Options) { o.Files = []File{{Path: "/a"}, {Path: "/a"}} }, "--file /a"},
		"binary placeholder":   {"debian", func(o *Options) { o.Files = []File{{Path: "/a", Content: []byte("<<API_ENDPOINT>>\x00")}} }, "--file /a: the file contains a placeholder but is not UTF-8 text"},
		"unit's name":          {"debian", func(o *Options) { o.Units = []Unit{{Name: "../a.service"}} }, `--unit "../a.service"`},
		"unit of the profile":  {"debian", func(o *Options) { o.Units = []Unit{{"kubelet.service", []byte("a")}} }, "--unit kubelet.service"},
		"empty unit":           {"debian", func(o *Options) { o.Units = []Unit{{Name: "a.service"}} }, "--unit a.service: the file is empty"},
		"unit never started":   {"debian", func(o *Options) { o.Units = []Unit{{"a.service", []byte("[Service]\n")}} }, "--unit a.service: the unit has no [Install] section"},
		"unit with the token":  {"debian", func(o *Options) { o.Units = []Unit{{"a.service", []byte("<<BOOTSTRAP_TOKEN>>")}} }, "--unit a.service"},
		"no server":            {"rke2", func(o *Options) { o.Server = "" }, "--server is not set"},
		"server":               {"k3s", func(o *Options) { o.Server = "https://a b" }, `--server "https://a b"`},
		"server without TLS":   {"rke2", func(o *Options) { o.Server = "http://a:9345" }, `--server "http://a:9345": must start with https://`},
		"server's password":    {"k3s", func(o *Options) { o.Server = "https://user:hidden@a" }, `--server "https://***@a"`},
		"server elsewhere":     {"kubeadm", func(o *Options) { o.Server = "https://a" }, `--server "https://a": is valid only for the profiles k3s and rke2`},
		"agent of the profile": {"k3s", func(o *Options) { o.Units = []Unit{{"k3s-agent.service", []byte("[Install]\n")}} }, "--unit k3s-agent.service"},
		"agent's file":         {"rke2", func(o *Options) { o.Files = []File{{Path: "/etc/rancher/rke2/config.yaml"}} }, "already writes this file"},
		"kubeadm's file":       {"kubeadm", func(o *Options) { o.Files = []File{{Path: joinConfigPath}} }, "already writes this file"},
	} {
		t.Run(name, func(t *testing.T) {
			o := minimalOptions(test.profile)
			test.change(&o)
			_, err := Render(o)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hidden hidden hidden") ||
				strings.Contains(err.Error(), ":hidden") {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestKubeletOptionsAreRefusedIfProfileDoesNotConfigureKubelet(t *testing.T) {
	reasons := map[string]string{
		"kubeadm": "kubeadm reads the kubelet's settings from the cluster's ConfigMap kubelet-config",
		"k3s":     "the settings in /etc/rancher/k3s",
		"rke2":    "the settings in /etc/rancher/rke2",
	}
	for flag, change := range map[string]func(*Options){
		`--kubelet "preinstalled"`:          func(o *Options) { o.Kubelet = KubeletPreinstalled },
		`--kubelet-url "https://***@a"`:     func(o *Options) { o.KubeletURL = "https://user:hidden@a" },
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
			o := minimalOptions(name)
			change(&o)
			_, err := Render(o)
			if err == nil || !strings.HasPrefix(err.Error(), flag+": the profile "+name+" ") || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s with %s: error %v", name, flag, err)
			}
		}
	}
	for name := range reasons {
		o := minimalOptions(name)
		o.Runtime = RuntimePackage
		if _, err := Render(o); err == nil || !strings.Contains(err.Error(), `--runtime "package": the profile `+name) {
			t.Errorf("%s with --runtime package: error %v", name, err)
		}
	}
}
