package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/link"
)

// verify ends all disturbances. Then verify checks that the fleet reaches the requested state and stays there without
// writes, and that nothing remains after the deletion of the fleet.
func (e *experiment) verify(ctx context.Context) {
	if ctx.Err() != nil {
		e.breach("the run was interrupted")
		return
	}
	if err := e.endDisturbances(ctx); err != nil {
		e.breach("end all disturbances: %v", err)
		return
	}
	begun := time.Now()
	if problems := e.await(ctx, e.fleetProblems); len(problems) > 0 {
		e.breach("the fleet is not as requested %s after the last disturbance:\n  %s", e.options.patience,
			strings.Join(problems, "\n  "))
	} else {
		e.result("the fleet is as requested %s after the last disturbance", time.Since(begun).Round(time.Second))
	}
	e.checkNoWrites(ctx)
	if err := e.deleteFleet(ctx); err != nil {
		e.breach("delete the fleet: %v", err)
		return
	}
	begun = time.Now()
	if problems := e.await(ctx, e.leftovers); len(problems) > 0 {
		e.breach("resources of the fleet are left %s after it was deleted:\n  %s", e.options.patience,
			strings.Join(problems, "\n  "))
	} else {
		e.result("nothing is left of the fleet %s after it was deleted", time.Since(begun).Round(time.Second))
	}
	e.searchLogs()
}

func (e *experiment) endDisturbances(ctx context.Context) error {
	e.logf("all disturbances end")
	for _, r := range e.replicas {
		if err := r.signal(syscall.SIGCONT); err != nil {
			return err
		}
		for _, l := range []*link.Link{r.control, r.target, r.cloud} {
			if l != nil {
				l.SetCut(link.CutNone)
			}
		}
	}
	if err := e.cloud.ClearFaults(ctx); err != nil {
		return err
	}
	if err := e.updateCredentials(ctx); err != nil {
		return err
	}
	none := simcloud.Duration(0)
	if _, err := e.cloud.PatchSettings(ctx, simcloud.SettingsPatch{ReadLag: &none}); err != nil {
		return err
	}
	for _, cp := range []*controlplane.ControlPlane{e.Control, e.Target} {
		// After many failures, the informers of the controller manager retry only once a minute, so restart it.
		if err := cp.RestartControllerManager(ctx); err != nil {
			return err
		}
	}
	for _, d := range pools() {
		if err := e.users.change(ctx, d.Name, func(d *v1beta1.MachineDeployment) { d.Spec.Paused = false }); err != nil {
			return err
		}
	}
	return nil
}

func (e *experiment) await(ctx context.Context, check func(context.Context) []string) (problems []string) {
	ctx, cancel := context.WithTimeout(ctx, e.options.patience)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		seen := check(ctx)
		if len(seen) == 0 {
			return nil
		}
		if ctx.Err() == nil {
			problems = seen
		}
		select {
		case <-ctx.Done():
			return problems
		case <-tick.C:
		}
	}
}

func (e *experiment) deleteFleet(ctx context.Context) error {
	list := &v1beta1.MachineDeploymentList{}
	if err := e.control.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		if err := e.control.Delete(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkNoWrites checks that the processes send no writes for the duration options.rest. checkNoWrites tries up to three
// times, because the processes may still have some work left.
func (e *experiment) checkNoWrites(ctx context.Context) {
	ours := auditlog.Filter{Users: []string{stack.Manager, stack.Provider}}
	var last []string
	for range 3 {
		var logs []*auditlog.Log
		for _, cp := range []*controlplane.ControlPlane{e.Control, e.Target} {
			log, err := auditlog.Open(cp.AuditLog())
			if err == nil {
				err = log.Mark()
			}
			if err != nil {
				e.breach("read the audit log: %v", err)
				return
			}
			logs = append(logs, log)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(e.options.rest):
		}
		last = nil
		for _, log := range logs {
			counts, err := log.Count(ours)
			if err != nil {
				e.breach("read the audit log: %v", err)
				return
			}
			if counts.Writes+counts.Events+counts.Conflicts+counts.Failed > 0 {
				last = append(last, counts.String())
			}
		}
		if len(last) == 0 {
			e.result("the processes wrote nothing for %s", e.options.rest)
			return
		}
		e.logf("the processes still write: %s", strings.Join(last, "; "))
	}
	e.breach("the processes do not stop writing: in the last %s there were %s", e.options.rest, strings.Join(last, "; "))
}

// searchLogs searches all logs for secrets. Audit logs contain no request bodies, but names and paths.
func (e *experiment) searchLogs() {
	read, found, err := secretsIn(e.watcher.secrets, e.Dir(), e.Control.Dir(), e.Target.Dir())
	if err != nil {
		e.breach("read the logs: %v", err)
	}
	for _, text := range found {
		e.breach("I10: %s", text)
	}
	e.result("found %d secrets in %d logs", len(found), read)
}

// secretsIn searches the logs in folders for secrets. secretsIn returns the number of logs, and a text for each secret
// that it found.
func secretsIn(secrets map[string]string, dirs ...string) (read int, found []string, err error) {
	for _, dir := range dirs {
		logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			return read, found, err
		}
		for _, path := range logs {
			content, err := os.ReadFile(path)
			if err != nil {
				return read, found, err
			}
			read++
			for name, secret := range secrets {
				if bytes.Contains(content, []byte(secret)) {
					found = append(found, fmt.Sprintf("%s is in %s", name, path))
				}
			}
		}
	}
	return read, found, nil
}
