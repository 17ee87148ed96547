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
func (w *world) verify(ctx context.Context) {
	if ctx.Err() != nil {
		w.breach("the run was interrupted")
		return
	}
	if err := w.endDisturbances(ctx); err != nil {
		w.breach("end all disturbances: %v", err)
		return
	}
	begun := time.Now()
	if problems := w.await(ctx, w.fleetProblems); len(problems) > 0 {
		w.breach("the fleet is not as requested %s after the last disturbance:\n  %s", w.options.patience,
			strings.Join(problems, "\n  "))
	} else {
		w.result("the fleet is as requested %s after the last disturbance", time.Since(begun).Round(time.Second))
	}
	w.checkNoWrites(ctx)
	if err := w.deleteFleet(ctx); err != nil {
		w.breach("delete the fleet: %v", err)
		return
	}
	begun = time.Now()
	if problems := w.await(ctx, w.leftovers); len(problems) > 0 {
		w.breach("resources of the fleet are left %s after it was deleted:\n  %s", w.options.patience,
			strings.Join(problems, "\n  "))
	} else {
		w.result("nothing is left of the fleet %s after it was deleted", time.Since(begun).Round(time.Second))
	}
	w.searchLogs()
}

func (w *world) endDisturbances(ctx context.Context) error {
	w.logf("all disturbances end")
	for _, r := range w.replicas {
		if err := r.signal(syscall.SIGCONT); err != nil {
			return err
		}
		for _, l := range []*link.Link{r.control, r.target, r.cloud} {
			if l != nil {
				l.SetCut(link.CutNone)
			}
		}
	}
	if err := w.cloud.ClearFaults(ctx); err != nil {
		return err
	}
	if err := w.updateCredentials(ctx); err != nil {
		return err
	}
	none := simcloud.Duration(0)
	if _, err := w.cloud.PatchSettings(ctx, simcloud.SettingsPatch{ReadLag: &none}); err != nil {
		return err
	}
	for _, cp := range []*controlplane.ControlPlane{w.Control, w.Target} {
		// After many failures, the informers of the controller manager retry only once a minute, so restart it.
		if err := cp.RestartControllerManager(ctx); err != nil {
			return err
		}
	}
	for _, d := range pools() {
		if err := w.users.change(ctx, d.Name, func(d *v1beta1.MachineDeployment) { d.Spec.Paused = false }); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) await(ctx context.Context, check func(context.Context) []string) (problems []string) {
	ctx, cancel := context.WithTimeout(ctx, w.options.patience)
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

func (w *world) deleteFleet(ctx context.Context) error {
	list := &v1beta1.MachineDeploymentList{}
	if err := w.control.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		if err := w.control.Delete(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkNoWrites checks that the processes send no writes for the duration options.rest. checkNoWrites tries up to three
// times, because the processes may still have some work left.
func (w *world) checkNoWrites(ctx context.Context) {
	ours := auditlog.Filter{Users: []string{stack.Manager, stack.Provider}}
	var last []string
	for range 3 {
		var logs []*auditlog.Log
		for _, cp := range []*controlplane.ControlPlane{w.Control, w.Target} {
			log, err := auditlog.Open(cp.AuditLog())
			if err == nil {
				err = log.Mark()
			}
			if err != nil {
				w.breach("read the audit log: %v", err)
				return
			}
			logs = append(logs, log)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.options.rest):
		}
		last = nil
		for _, log := range logs {
			counts, err := log.Count(ours)
			if err != nil {
				w.breach("read the audit log: %v", err)
				return
			}
			if counts.Writes+counts.Events+counts.Conflicts+counts.Failed > 0 {
				last = append(last, counts.String())
			}
		}
		if len(last) == 0 {
			w.result("the processes wrote nothing for %s", w.options.rest)
			return
		}
		w.logf("the processes still write: %s", strings.Join(last, "; "))
	}
	w.breach("the processes do not stop writing: in the last %s there were %s", w.options.rest, strings.Join(last, "; "))
}

// searchLogs searches all logs for secrets. Audit logs contain no request bodies, but names and paths.
func (w *world) searchLogs() {
	read, found, err := secretsIn(w.watcher.secrets, w.Dir(), w.Control.Dir(), w.Target.Dir())
	if err != nil {
		w.breach("read the logs: %v", err)
	}
	for _, text := range found {
		w.breach("I10: %s", text)
	}
	w.result("found %d secrets in %d logs", len(found), read)
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
