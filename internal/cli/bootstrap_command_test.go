package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBootstrapRender(t *testing.T) {
	folder := t.TempDir()
	script, out := filepath.Join(folder, "run.sh"), filepath.Join(folder, "secret.yaml")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args           []string
		reports, fails string
	}{
		"a Secret": {args: []string{"--profile=preinstalled", "--name=w", "--namespace=fleet"},
			reports: "  namespace: \"fleet\"\n"},
		"with a file": {args: []string{"--profile=preinstalled", "--name=w", "--file=/opt/run=" + script},
			reports: "- path: \"/opt/run\"\n        permissions: \"0755\""},
		"with features": {args: []string{"--profile=preinstalled", "--name=w", "--feature-gates=A=true,B=false"}, reports: "A: true\n            B: false"},
		"with a server": {args: []string{"--profile=rke2", "--name=w", "--server=https://a:9345"},
			reports: "server: \"https://a:9345\""},
		"without a server": {args: []string{"--profile=rke2", "--name=w"}, fails: "--server is not set"},
		"kubeadm": {args: []string{"--profile=kubeadm", "--name=w", "--set-hostname"},
			reports: "<<KUBEADM_JOIN_CONFIG>>"},
		"into a file":        {args: []string{"--profile=preinstalled", "--name=w", "--output=" + out}},
		"without a name":     {args: []string{"--profile=preinstalled"}, fails: "--name is not set"},
		"a bad name":         {args: []string{"--profile=preinstalled", "--name=A_b"}, fails: `--name "A_b"`},
		"a bad namespace":    {args: []string{"--profile=preinstalled", "--name=a", "-n=A"}, fails: `--namespace "A"`},
		"no profile":         {args: []string{"--name=a"}, fails: `--profile ""`},
		"a missing file":     {args: []string{"--name=a", "--kubelet-config=/nowhere/x"}, fails: "--kubelet-config: open /nowhere/x"},
		"an invalid file":    {args: []string{"--name=a", "--file=/a"}, fails: `--file "/a": write PATH=LOCAL`},
		"a missing unit":     {args: []string{"--name=a", "--unit=a.service=/nowhere/x"}, fails: `--unit "a.service=/nowhere/x"`},
		"an invalid feature": {args: []string{"--name=a", "--feature-gates=A=x"}, fails: `--feature-gates "A=x"`},
		"two checksums":      {args: []string{"--name=a", "--kubelet-sha256=v1=a", "--kubelet-sha256=v1=b"}, fails: `--kubelet-sha256 "v1=b"`},
		"an unwritable file": {args: []string{"--profile=preinstalled", "--name=w", "-o=/nowhere/x"}, fails: "--output"},
	} {
		t.Run(name, func(t *testing.T) {
			var printed bytes.Buffer
			cmd := BootstrapCommand(NewEnv(&printed, &printed))
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			cmd.SetArgs(append([]string{"render"}, test.args...))
			err := cmd.Execute()
			if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("got the error %v, want %q", err, test.fails)
			}
			if !strings.Contains(printed.String(), test.reports) {
				t.Errorf("got %s", printed.String())
			}
		})
	}
	info, err := os.Stat(out)
	if err != nil || info.Mode() != 0o600 || info.Size() == 0 {
		t.Errorf("the file is %v, %v; want a file that only its owner can read", info, err)
	}
}
