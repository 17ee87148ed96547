package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/preview"
)

// addPlaced adds a deployment whose placement has n domains. Each domain has a class and a fallback class.
func (f *fake) addPlaced(name string, n int) *v1beta1.MachineDeployment {
	p := &v1beta1.Placement{}
	for i := range n {
		domain := v1beta1.PlacementDomain{Name: fmt.Sprintf("domain-%d", i)}
		for _, class := range []string{"small", "large"} {
			domain.Options = append(domain.Options, v1beta1.PlacementOption{ClassName: fmt.Sprintf("%s-%d", class, i)})
		}
		p.Domains = append(p.Domains, domain)
	}
	d := f.add("prod", name, n, func(i int, m *v1beta1.Machine) {
		m.Labels[v1beta1.LabelPlacementDomain] = p.Domains[i].Name
		m.Spec.ClassRef = &v1beta1.LocalRef{Name: p.Domains[i].Options[0].ClassName}
	})
	d.Spec.Placement = p
	f.facts.Sets[len(f.facts.Sets)-1].Spec.Placement = p
	return d
}

func TestPlacementIsShown(t *testing.T) {
	f := newFake()
	d := f.addPlaced("web", 3)
	since, retry := metav1.NewTime(noon.Add(-time.Minute)), metav1.NewTime(noon.Add(time.Minute))
	d.Status.Placement = []v1beta1.PlacementOptionStatus{{Domain: "domain-1", ClassName: "small-1", ExhaustedSince: &since,
		RetryTime: &retry}}
	f.plans = []*preview.Plan{{Name: "web", Places: []preview.Place{{Domain: "domain-7", Class: "small-7", After: 11}, {Class: "gone"}}}}
	b := open(t, f)
	page := b.get("/deployments/prod/web", http.StatusOK)
	for _, want := range []string{">domain-1</th><td>small-1</td>", ", next try <time", "small-0,large-0 and 4 more",
		"3 other options are not shown"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the deployment has no %q:\n%s", want, page)
		}
	}
	if strings.Count(page, "next try") != 1 || strings.Contains(page, "<td>large-1</td>") {
		t.Errorf("the page shows that other classes have no capacity, or a fallback class without machines:\n%s", page)
	}
	machine := b.get("/machines/prod/web-abcde-00002", http.StatusOK)
	if !strings.Contains(machine, "<dt>Domain</dt><dd>domain-2</dd>") || !strings.Contains(machine, "<dt>Class</dt><dd>small-2</dd>") {
		t.Errorf("the page of the machine does not show its place:\n%s", machine)
	}
	post := b.request("POST", "/plan", url.Values{"manifest": {"x"}}.Encode())
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if plan := b.send(post).Body.String(); !strings.Contains(plan, `>domain-7</th><td>small-7</td><td class="n">0</td><td class="n">11</td>`) ||
		!strings.Contains(plan, "not an option") {
		t.Errorf("the plan does not show the places:\n%s", plan)
	}
}

func TestPageOfLargePlacementIsSmall(t *testing.T) {
	f := newFake()
	f.addPlaced("web", 200)
	page := open(t, f).get("/deployments/prod/web", http.StatusOK)
	if len(page) >= maxBytes || !strings.Contains(page, "336 other options are not shown") {
		t.Errorf("the page has %d bytes, want less than %d", len(page), maxBytes)
	}
}
