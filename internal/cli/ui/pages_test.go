package ui

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/preview"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/health/orphans/ledger"
)

const maxBytes = 150_000

func allURLs(s *fake) []string {
	m, d := s.facts.Machines[0], s.facts.Deployments[0]
	return []string{"/", "/?state=Complete&page=2", "/machines", "/machines?page=7", "/machines?state=broken&sort=-age",
		"/machines/" + m.Namespace + "/" + m.Name, "/deployments/" + d.Namespace + "/" + d.Name, "/zones", "/ownership",
		"/ownership?q=" + d.Name, "/failures", "/orphans", "/plan"}
}

// largeFleet returns 10,000 machines, with lists and texts of maximum length.
func largeFleet() *fake {
	f := newFake()
	long := strings.Repeat("what the cloud says about it ", 40)[:1024]
	at := metav1.NewTime(noon)
	for i := range 100 {
		d := f.add("prod", fmt.Sprintf("workers-of-team-%03d-with-a-long-name-for-it", i), 100, func(n int, m *v1beta1.Machine) {
			m.Status.Instance.Zone = fmt.Sprintf("region-with-a-long-name-zone-%d", n%24)
			if n%5 == 0 {
				fail(long)(m)
			}
		})
		for j := range 5 {
			d.Status.RecentFailures = append(d.Status.RecentFailures, v1beta1.FailedMachine{
				Name: fmt.Sprintf("%s-gone-%d", d.Name, j), Reason: "InsufficientResources", Message: long, Time: &at})
		}
	}
	for i := range 200 {
		f.events = append(f.events, why.Event{First: noon, Last: noon, Count: 3, Warning: true, Reason: "CreateFailed",
			Message: long[:400+i]})
	}
	page := ledger.Page{Provider: "sim", WriteTime: noon, Period: 1800, Total: 500}
	for i := range ledger.MostEntries {
		page.Entries = append(page.Entries, ledger.Entry{ProviderID: fmt.Sprintf("sim://sim-1/sim-1a/i-%017x", i),
			Machine: "prod/" + f.facts.Machines[i].Name, Source: "prod/large", FirstSeen: noon, Outcome: "Unconfirmed"})
	}
	f.orphans = fleet.OrphansOf(noon, "", []ledger.Page{page}, nil)
	return f
}

func TestPagesOfTenThousandMachinesAreSmall(t *testing.T) {
	f := largeFleet()
	b := open(t, f)
	for _, path := range allURLs(f) {
		page := b.get(path, http.StatusOK)
		t.Logf("%s: %d bytes", path, len(page))
		if len(page) >= maxBytes {
			t.Errorf("%s has %d bytes, want less than %d", path, len(page), maxBytes)
		}
	}
}

func TestMarkupInNamesAndMessagesIsEscaped(t *testing.T) {
	f := newFake()
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>'{{.}}` + "\x1b[2J\u202e"
	at := metav1.NewTime(noon)
	d := f.add("prod", "web", 3, func(i int, m *v1beta1.Machine) {
		fail(evil)(m)
		m.Status.NodeRef.Name, m.Status.Instance.Zone, m.Status.Version, m.Spec.ProviderID = evil, evil, evil, evil
		m.Status.Instance.Type, m.Status.Instance.Region = evil, evil
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: evil, Reason: evil, Message: evil})
		if i == 2 {
			m.Name, m.Labels = evil, map[string]string{v1beta1.LabelMachineDeployment: evil}
		}
	})
	d.Status.RecentFailures = []v1beta1.FailedMachine{{Name: evil, Reason: evil, Message: evil, Time: &at}}
	d.Status.Conditions[0].Message = evil
	f.events = []why.Event{{Last: noon, Reason: evil, Message: evil}}
	f.facts.ReadErrors, f.scope = []string{evil}, Scope{Context: evil, Server: evil}
	f.orphans = fleet.OrphansOf(noon, "", []ledger.Page{{Provider: evil, Stopped: evil, Entries: []ledger.Entry{{ProviderID: evil,
		Machine: evil, Source: evil, Outcome: evil}}}}, nil)
	f.plans, f.planErr = []*preview.Plan{{Name: evil, Namespace: evil, Notes: []string{evil}}}, errors.New(evil)
	b := open(t, f)
	tags := regexp.MustCompile(`(?i)<script>|<img`)
	check := func(path, page string) {
		t.Helper()
		if found := tags.FindString(page); found != "" || strings.ContainsAny(page, "\x1b\u202e") {
			t.Errorf("%s has markup or control characters from a name or a message: %q", path, found)
		}
		if path != "/plan" && !strings.Contains(page, "alert(1)") {
			t.Errorf("%s does not show the text at all", path)
		}
	}
	for _, path := range append(allURLs(f), "/machines?q="+url.QueryEscape(evil), "/machines/"+url.PathEscape(evil)+"/x",
		"/machines?zone="+url.QueryEscape(evil)) {
		answer := b.send(b.request("GET", path, ""))
		check(path, answer.Body.String())
	}
	post := b.request("POST", "/plan", url.Values{"manifest": {evil}}.Encode())
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	check("a plan", b.send(post).Body.String())
	if f.planned != evil {
		t.Errorf("the manifest arrived as %q", f.planned)
	}
}

func TestFilter(t *testing.T) {
	f := newFake()
	f.add("prod", "web", 4, func(i int, m *v1beta1.Machine) {
		if i == 1 {
			fail("gone")(m)
		}
		if i == 3 {
			m.Status.Instance, m.CreationTimestamp = nil, metav1.NewTime(noon)
		}
	})
	f.add("test", "web", 2, nil)
	b := open(t, f)
	rows := regexp.MustCompile(`data-key="([^"]+)"`)
	for query, want := range map[string]string{
		"":                                 "prod/0 test/0 prod/1 test/1 prod/2 prod/3",
		"?namespace=test":                  "test/0 test/1",
		"?deployment=prod/web":             "prod/0 prod/1 prod/2 prod/3",
		"?deployment=web":                  "prod/0 test/0 prod/1 test/1 prod/2 prod/3",
		"?zone=zone-a":                     "prod/0 test/0",
		"?zone=-":                          "prod/3",
		"?state=broken":                    "prod/1",
		"?state=unsettled":                 "prod/1",
		"?state=Running&namespace=prod":    "prod/0 prod/2 prod/3",
		"?q=NODE-web-abcde-00001":          "prod/1 test/1",
		"?q=i-00003":                       "prod/3",
		"?set=web-abcde&namespace=test":    "test/0 test/1",
		"?sort=-name&namespace=test":       "test/1 test/0",
		"?sort=state&namespace=prod":       "prod/1 prod/0 prod/2 prod/3",
		"?sort=age&namespace=prod":         "prod/3 prod/0 prod/1 prod/2",
		"?sort=nonsense&namespace=test":    "test/0 test/1",
		"?q=nothing":                       "",
		"?page=999&namespace=test":         "test/0 test/1",
		"?page=-1&namespace=test":          "test/0 test/1",
		"?page=nonsense&deployment=a/b/c&": "",
	} {
		page := b.get("/machines"+query, http.StatusOK)
		var got []string
		for _, row := range rows.FindAllStringSubmatch(page, -1) {
			got = append(got, strings.Replace(row[1], "web-abcde-0000", "", 1))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("/machines%s lists %q, want %q", query, strings.Join(got, " "), want)
		}
	}
}

func TestPagingLinks(t *testing.T) {
	f := newFake()
	f.add("prod", "web", 250, nil)
	b := open(t, f)
	seen := map[string]bool{}
	next := regexp.MustCompile(`href="([^"]+)" rel="next"`)
	rows := regexp.MustCompile(`data-key="([^"]+)"`)
	pages := 0
	for at := "/machines?sort=zone"; at != ""; pages++ {
		page := b.get(at, http.StatusOK)
		for _, row := range rows.FindAllStringSubmatch(page, -1) {
			seen[row[1]] = true
		}
		at = ""
		if link := next.FindStringSubmatch(page); link != nil {
			at = strings.ReplaceAll(link[1], "&amp;", "&")
		}
	}
	if pages != 3 || len(seen) != 250 {
		t.Errorf("%d pages have %d machines, want 250 on 3", pages, len(seen))
	}
}

func TestFailuresStayVisible(t *testing.T) {
	f := newFake()
	at := metav1.NewTime(noon.Add(-5 * time.Minute))
	d := f.add("prod", "web", 2, func(i int, m *v1beta1.Machine) {
		if i == 0 {
			fail("instance i-7 does not exist")(m)
		}
	})
	d.Status.RecentFailures = []v1beta1.FailedMachine{{Name: "web-gone", Reason: "CreateError",
		Message: "quota of vCPUs is 8", Time: &at}}
	b := open(t, f)
	for path, texts := range map[string][]string{
		"/":                     {"quota of vCPUs is 8", "CreateError"},
		"/failures":             {"quota of vCPUs is 8", "Gone", "instance i-7 does not exist"},
		"/deployments/prod/web": {"quota of vCPUs is 8", "Gone"},
	} {
		page := b.get(path, http.StatusOK)
		for _, text := range texts {
			if !strings.Contains(page, text) {
				t.Errorf("%s does not contain %q", path, text)
			}
		}
	}
	if page := b.get("/machines/prod/web-gone", http.StatusNotFound); !strings.Contains(page, "quota of vCPUs is 8") {
		t.Errorf("the page of a machine that is gone does not show why it failed:\n%s", page)
	}
	b.get("/machines/prod/nobody", http.StatusNotFound)
	b.get("/deployments/prod/nobody", http.StatusNotFound)
}

func TestUnchangedFragmentIsNotSentAgain(t *testing.T) {
	f := newFake()
	f.add("prod", "web", 2, nil)
	b := open(t, f)
	fragment := func(tag string) (int, string, string) {
		r := b.request("GET", "/machines", "")
		r.Header.Set(fragmentHeader, "1")
		r.Header.Set("If-None-Match", tag)
		answer := b.send(r)
		return answer.Code, answer.Header().Get("ETag"), answer.Body.String()
	}
	code, tag, body := fragment("")
	if code != http.StatusOK || tag == "" || strings.Contains(body, "<html") || !strings.Contains(body, `id="live"`) {
		t.Fatalf("a fragment: status %d, ETag %q:\n%s", code, tag, body)
	}
	if again, _, body := fragment(tag); again != http.StatusNotModified || body != "" {
		t.Errorf("the second request: status %d, %d bytes", again, len(body))
	}
}

func TestPlanPage(t *testing.T) {
	f := newFake()
	b := open(t, f)
	post := func(manifest string) (int, string) {
		r := b.request("POST", "/plan", url.Values{"manifest": {manifest}}.Encode())
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer := b.send(r)
		return answer.Code, answer.Body.String()
	}
	p := &preview.Plan{Name: "web", Namespace: "prod", Strategy: "RollingUpdate", Peak: 4, Least: 3,
		Blockers: []preview.Blocker{{Message: "The deployment is paused."}}, Notes: []string{"Drains are not previewed."}}
	for i := range 500 {
		p.Waves = append(p.Waves, preview.Wave{Create: map[string]int32{"web-b": int32(1 + i%2)}, Existing: 4, Available: 3})
	}
	f.plans = []*preview.Plan{p}
	code, page := post("kind: MachineDeployment")
	for _, text := range []string{"The deployment is paused.", "Drains are not previewed.", "At most 4 machines",
		"440 more rows are not shown", "kind: MachineDeployment"} {
		if code != http.StatusOK || !strings.Contains(page, text) {
			t.Errorf("a plan: status %d, page without %q", code, text)
		}
	}
	f.plans, f.planErr = nil, errors.New("the API server would refuse it:\n  spec.replicas: must not be negative")
	if code, page := post("x"); code != http.StatusUnprocessableEntity || !strings.Contains(page, "spec.replicas: must not be negative") {
		t.Errorf("a refused manifest: status %d", code)
	}
	if code, _ := post(strings.Repeat("x", maxBody)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a manifest that is too large: status %d", code)
	}
}

func TestBarCountsEachMachineOnce(t *testing.T) {
	f := newFake()
	gone := metav1.NewTime(noon)
	d := f.add("prod", "web", 6, func(i int, m *v1beta1.Machine) {
		switch i {
		case 0:
			fail("x")(m)
		case 1:
			m.DeletionTimestamp, m.Status.Phase = &gone, v1beta1.MachineDeleting
		case 2:
			m.Status.Phase, m.Status.Conditions = v1beta1.MachineProvisioning, nil
		}
	})
	n := int32(10)
	d.Spec.Replicas = &n
	bar := newSnapshot(f.facts, noon).bars[keyOf(d)]
	want := Bar{Desired: 10, Ready: 3, Coming: 1, Failed: 1, Leaving: 1}
	if bar != want || bar.Total() != 10 || bar.Percent() != 30 {
		t.Errorf("the bar is %+v, %d long and at %d percent, want %+v", bar, bar.Total(), bar.Percent(), want)
	}
	if words := bar.Words(); words != "3 of 10 ready with the newest revision, 1 not ready yet, 1 failed, 1 being deleted" {
		t.Errorf("Words() = %q", words)
	}
	long := 0
	for _, s := range (Bar{Desired: 9999, Ready: 9998, Failed: 1}).Segments() {
		if s.Long < 8 {
			t.Errorf("the segment %+v is too short", s)
		}
		long += s.Long
	}
	if long > 1000 {
		t.Errorf("the segments have a total length of %d", long)
	}
}
