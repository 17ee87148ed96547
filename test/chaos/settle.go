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

// settle ends all that is wrong with the world, and looks whether the fleet becomes what was asked for, stays so, and
// goes.
func (w *world) settle(ctx context.Context) {
	if ctx.Err() != nil {
		w.breach("it was broken off")
		return
	}
	if err := w.heal(ctx); err != nil {
		w.breach("the world does not heal: %v", err)
		return
	}
	begun := time.Now()
	if problems := w.await(ctx, w.asWanted); len(problems) > 0 {
		w.breach("the fleet is not what was asked for, %s after the last disturbance:\n  %s", w.options.patience,
			strings.Join(problems, "\n  "))
	} else {
		w.result("all is as wanted %s after the last disturbance", time.Since(begun).Round(time.Second))
	}
	w.rests(ctx)
	if err := w.clear(ctx); err != nil {
		w.breach("the fleet cannot be deleted: %v", err)
		return
	}
	begun = time.Now()
	if problems := w.await(ctx, w.asNever); len(problems) > 0 {
		w.breach("something is left of the fleet %s after it was deleted:\n  %s", w.options.patience,
			strings.Join(problems, "\n  "))
	} else {
		w.result("nothing is left of the fleet %s after it was deleted", time.Since(begun).Round(time.Second))
	}
	w.readLogs()
}

// heal makes sure of what each disturbance should have undone.
func (w *world) heal(ctx context.Context) error {
	w.logf("all heals")
	for _, r := range w.replicas {
		if err := r.signal(syscall.SIGCONT); err != nil {
			return err
		}
		for _, l := range []*link.Link{r.control, r.target, r.cloud} {
			if l != nil {
				l.Become(link.Whole)
			}
		}
	}
	if err := w.cloud.ClearFaults(ctx); err != nil {
		return err
	}
	if err := w.renewCredentials(ctx); err != nil {
		return err
	}
	none := simcloud.Duration(0)
	if _, err := w.cloud.PatchSettings(ctx, simcloud.SettingsPatch{ReadLag: &none}); err != nil {
		return err
	}
	for _, cp := range []*controlplane.ControlPlane{w.Control, w.Target} {
		// Whose informers would check again only once a minute after all that.
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

// await looks until there is no problem, and returns those that there are when its patience ends.
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

func (w *world) clear(ctx context.Context) error {
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

// rests looks whether our processes write nothing for as long as is asked, once all is well; what was left to do then
// may be done first.
func (w *world) rests(ctx context.Context) {
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
				w.breach("the audit log cannot be read: %v", err)
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
				w.breach("the audit log cannot be read: %v", err)
				return
			}
			if counts.Writes+counts.Events+counts.Conflicts+counts.Failed > 0 {
				last = append(last, counts.String())
			}
		}
		if len(last) == 0 {
			w.result("nothing was written for %s when settled", w.options.rest)
			return
		}
		w.logf("written meanwhile: %s", strings.Join(last, "; "))
	}
	w.breach("the fleet does not come to rest: in the last %s there were %s", w.options.rest, strings.Join(last, "; "))
}

// readLogs looks for secrets in all logs; the audit logs among them have no bodies of requests, but names and paths.
func (w *world) readLogs() {
	read, found, err := secretsIn(w.watcher.secrets, w.Dir(), w.Control.Dir(), w.Target.Dir())
	if err != nil {
		w.breach("read the logs: %v", err)
	}
	for _, text := range found {
		w.breach("I10: %s", text)
	}
	w.result("%d secrets were found in %d logs", len(found), read)
}

// secretsIn looks for secrets, by what they are, in the logs in folders.
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
			for what, secret := range secrets {
				if bytes.Contains(content, []byte(secret)) {
					found = append(found, fmt.Sprintf("%s is in %s", what, path))
				}
			}
		}
	}
	return read, found, nil
}
