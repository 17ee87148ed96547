package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"machinist.dev/machinist/simcloud"
)

// TestStateSurvivesKill checks that a killed process loses no change that it had confirmed to a client.
func TestStateSurvivesKill(t *testing.T) {
	p, ctx := startProcess(t), t.Context()
	first := p.create("first", []byte("#cloud-config\n"))
	if _, err := p.client.DeleteInstance(ctx, p.create("second", nil).ID); err != nil {
		t.Fatal(err)
	}
	third := p.create("third", nil)
	if _, err := p.client.UpdateTags(ctx, third.ID,
		simcloud.UpdateTagsRequest{Set: map[string]string{"k": "v"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.admin.AddFault(ctx, simcloud.FaultRule{Operation: simcloud.OperationGetInstance, Skip: 1, Count: 1,
		Effect: simcloud.FaultEffect{Error: simcloud.CodeUnavailable}}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.GetInstance(ctx, first.ID); err != nil {
		t.Fatal(err)
	}
	p.restart(syscall.SIGKILL)

	if _, err := p.client.GetInstance(ctx, first.ID); simcloud.CodeOf(err) != simcloud.CodeUnavailable {
		t.Errorf("the fault was lost: %v", err)
	}
	if same := p.create("first", []byte("#cloud-config\n")); same.ID != first.ID ||
		same.PrivateIPs[0] != first.PrivateIPs[0] {
		t.Errorf("the same client token created %+v", same)
	}
	list, err := p.client.ListInstances(ctx, simcloud.ListInstancesOptions{Tags: map[string]string{"k": "v"}})
	if err != nil || len(list.Instances) != 1 || list.Instances[0].ID != third.ID {
		t.Errorf("list: %+v %v", list, err)
	}
	eventually(t, func() error {
		d, err := p.admin.Dump(ctx)
		if err != nil {
			return err
		}
		var states []string
		for _, r := range d.Records {
			states = append(states, string(r.State))
		}
		if got := strings.Join(states, " "); got != "running terminated running" || d.InstancesCreated != 3 {
			return &simcloud.Error{Message: got}
		}
		return nil
	})
	p.wantConsole(first.ID, "no cluster to join: user data has no /etc/kubernetes/bootstrap-kubeconfig")
	p.wantConsole(third.ID, "there is no user data")
}

func TestSignalEndsProcess(t *testing.T) {
	p := startProcess(t)
	inst := p.create("a", nil)
	p.restart(syscall.SIGTERM) // also checks the exit status
	if same := p.create("a", nil); same.ID != inst.ID {
		t.Error("the state was lost")
	}
	p.restart(syscall.SIGINT)
}

func TestInvalidFlags(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mention, args := range map[string][]string{
		"state-dir":          {"--token=t"},
		"there is no":        {"--state-dir=" + dir},
		"loopback":           {"--state-dir=" + dir, "--token=t", "--listen=0.0.0.0:0"},
		"loopback address":   {"--state-dir=" + dir, "--token=t", "--listen=example.com:80"},
		"missing port":       {"--state-dir=" + dir, "--token=t", "--listen=127.0.0.1"},
		"is empty":           {"--state-dir=" + dir, "--token-file=" + empty},
		"--admin-token-file": {"--state-dir=" + dir, "--token=t", "--admin-token-file=" + dir + "/nowhere"},
		"log-level":          {"--state-dir=" + dir, "--token=t", "--log-level=loud"},
		"--config":           {"--state-dir=" + dir, "--config=" + dir + "/nowhere"},
		"none of the others": {"--state-dir=" + dir, "--token=t", "--token-file=" + empty},
		"unknown command":    {"--state-dir=" + dir, "--token=t", "serve"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := command()
		cmd.SetArgs(args)
		cmd.SetErr(t.Output())
		// If the command accepts the flags by mistake, the canceled context ends it immediately.
		cancel()
		if err := cmd.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), mention) {
			t.Errorf("%v: got %v, want an error with %q", args, err, mention)
		}
	}
}

func TestTwoProcessesDoNotShareStateDirectory(t *testing.T) {
	p := startProcess(t)
	cmd := command()
	cmd.SetArgs([]string{"--state-dir", filepath.Join(p.dir, "state"), "--token=t"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "another process uses the "+
		"state directory") {
		t.Errorf("got %v", err)
	}
}
