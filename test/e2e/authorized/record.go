package authorized

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/install/manifests"
)

type process struct {
	user            string
	control, target manifests.Role
}

func processes() []process {
	return []process{
		{stack.Manager, manifests.ManagerControl, manifests.ManagerTarget},
		{stack.Provider, manifests.ProviderControl, manifests.ProviderTarget},
	}
}

// Clusters contains the names of the audit logs and the namespace of an installation. Control and Target may be the
// same log, and Target is "" without a target cluster. If Namespace is set, the cluster-wide roles of the control
// cluster are bound only there. ManagerRules are rules of the manager in the target cluster that depend on values of
// the chart.
type Clusters struct {
	Control, Target, Namespace string
	ManagerRules               []rbacv1.PolicyRule
}

// Record writes the used grants into the folder. The error of Record names each request that was refused or that the
// roles do not allow.
func Record(folder string, c Clusters) error {
	var lines, wrong []string
	for _, p := range processes() {
		for _, path := range slices.Compact([]string{c.Control, c.Target}) {
			if path == "" {
				continue
			}
			var grants []Grant
			for _, r := range []struct {
				log, namespace string
				role           manifests.Role
			}{{c.Control, c.Namespace, p.control}, {c.Target, "", p.target}} {
				if r.log != path {
					continue
				}
				g, err := grantsOf(r.role, r.namespace)
				if err != nil {
					return err
				}
				grants = append(grants, g...)
			}
			if p.user == stack.Manager && path == c.Target {
				for _, rule := range c.ManagerRules {
					grants = append(grants, split(Grant{Role: p.target}, rule)...)
				}
			}
			log, err := auditlog.Open(path)
			if err != nil {
				return err
			}
			requests, err := log.Requests(auditlog.Filter{Users: []string{p.user}})
			if err != nil {
				return err
			}
			used, w := checkRequests(requests, grants)
			for grant := range used {
				lines = append(lines, grant.String())
			}
			wrong = append(wrong, w...)
		}
	}
	if err := write(folder, lines); err != nil {
		return err
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return errors.New(strings.Join(slices.Compact(wrong), "\n"))
	}
	return nil
}

const suffix = ".used"

func write(folder string, lines []string) error {
	slices.Sort(lines)
	file, err := os.CreateTemp(folder, "*"+suffix)
	if err != nil {
		return fmt.Errorf("record the used grants: %w", err)
	}
	_, err = file.WriteString(strings.Join(slices.Compact(lines), "\n") + "\n")
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("record the used grants: %w", err)
	}
	return nil
}

// CheckUnused returns an error that lists unnecessary grants. No record in the folder contains such a grant, and the
// grant is not in neededWithoutRequest.
func CheckUnused(folder string) error {
	var grants []Grant
	for _, p := range processes() {
		for _, role := range []manifests.Role{p.control, p.target} {
			g, err := grantsOf(role, "")
			if err != nil {
				return err
			}
			grants = append(grants, g...)
		}
	}
	used, err := read(folder)
	if err != nil {
		return err
	}
	return compare(grants, used, neededWithoutRequest())
}

func read(folder string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	if err != nil {
		return nil, fmt.Errorf("find the records of used grants in %s: %w", folder, err)
	}
	used := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the used grants: %w", err)
		}
		for line := range strings.Lines(string(content)) {
			used[strings.TrimSpace(line)] = true
		}
	}
	return used, nil
}

// compare checks that each grant was used or has a documented reason for being unused, and that each reason belongs to
// a grant.
func compare(grants []Grant, used map[string]bool, reasons map[string]string) error {
	var errs []error
	granted := map[string]bool{}
	for _, g := range grants {
		s := g.String()
		granted[s] = true
		if !used[s] && reasons[s] == "" {
			errs = append(errs, fmt.Errorf("no request used %q: remove it from config/rbac, or test what needs it", s))
		}
	}
	for s := range reasons {
		if !granted[s] {
			errs = append(errs, fmt.Errorf("there is a reason for %q, which no role grants", s))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
