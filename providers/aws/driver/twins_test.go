package driver_test

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/driver"
	"machinist.dev/machinist/providers/aws/fakeaws"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of the first run of TestNoMachineHasTwoInstances; 0 means the time")
	runsFlag = flag.Int("runs", 1000, "number of runs of TestNoMachineHasTwoInstances")
)

// direct is a transport without a network. An answer that the fake loses is an error of the connection.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (out *http.Response, err error) {
	defer func() {
		if recover() != nil {
			out, err = nil, io.ErrUnexpectedEOF
		}
	}()
	w := httptest.NewRecorder()
	r.Host = r.URL.Host
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// owner follows the rules of provider.Driver for one machine, as Machinist does. It may crash at any time.
type owner struct {
	*fakeaws.AWS
	t      *testing.T
	random *rand.Rand
	settle time.Duration
	driver *driver.Driver

	// machine is the number of the machine. A machine whose instance vanished is replaced by another one.
	machine    int
	attempt    int
	providerID string
	scope      string
	handle     string
	// created is the end of the last Create call.
	created time.Time
	log     []string
	most    int
}

func (o *owner) name() string { return fmt.Sprint("machine-", o.machine) }

func (o *owner) get(byID bool) provider.GetRequest {
	req := provider.GetRequest{Machine: machineOf(o.name()), Class: class(), ClusterID: cluster}
	if byID {
		req.ProviderID, req.Scope, req.CreateHandle = o.providerID, o.scope, o.handle
	}
	return req
}

// record records the instance of the machine.
func (o *owner) record(in *provider.Instance) {
	o.providerID, o.scope, o.handle = in.ProviderID, in.Scope, in.CreateHandle
}

func newOwner(t *testing.T, seed uint64) *owner {
	o := &owner{t: t, random: rand.New(rand.NewPCG(seed, 1)), settle: 5 * time.Minute, attempt: 1}
	o.AWS = fakeaws.New(fakeaws.Options{AccessKey: accessKey, SecretKey: secretKey, BootDuration: 20 * time.Second,
		TerminateDuration: 30 * time.Second})
	o.restart()
	return o
}

func (o *owner) restart() {
	d, err := driver.New(driver.Options{Endpoint: "http://aws.example.com", Transport: direct{o.AWS},
		CreateSettle: o.settle})
	if err != nil {
		o.t.Fatal(err)
	}
	o.driver = d
}

func (o *owner) note(format string, args ...any) { o.log = append(o.log, fmt.Sprintf(format, args...)) }

// pass waits, and counts the instances at the fake after each step.
func (o *owner) pass(d time.Duration) {
	for step := max(d/10, time.Second); d > 0; d -= step {
		time.Sleep(min(step, d))
		for machine := range o.machine + 1 {
			uid := string(machineOf(fmt.Sprint("machine-", machine)).UID)
			o.most = max(o.most, len(o.Alive(provider.TagMachineUID, uid)))
		}
	}
}

func (o *owner) chance(percent int) bool { return o.random.IntN(100) < percent }

// disturb makes the cloud misbehave for a while. Reads lag, and changes take effect late, for less than
// CreateSettle.
func (o *owner) disturb() (end func()) {
	lag := func() time.Duration { return time.Duration(o.random.Int64N(int64(o.settle * 8 / 10))) }
	o.Adjust(func(options *fakeaws.Options) {
		options.Semantics.ReadLag, options.Semantics.ListLag, options.Semantics.TagLag = lag(), lag(), 0
		if o.chance(30) {
			options.Semantics.TagLag = lag()
		}
		options.Semantics.StateFlickers = o.chance(20)
		options.Semantics.GivesUp = ""
		if o.chance(20) {
			options.Semantics.GivesUp = "Server.InsufficientInstanceCapacity"
		}
	})
	var faults []func()
	for range o.random.IntN(3) {
		f := fakeaws.Fault{Action: "RunInstances", Skip: o.random.IntN(2), Times: 1 + o.random.IntN(4)}
		switch o.random.IntN(4) {
		case 0:
			f.LoseAnswer = true
		case 1:
			f.Late, f.Status, f.Code = lag(), http.StatusInternalServerError, "InternalError"
		case 2:
			f.Status, f.Code = http.StatusServiceUnavailable, "RequestLimitExceeded"
		case 3:
			f.Action, f.Status, f.Code = "Describe*", http.StatusServiceUnavailable, "Unavailable"
		}
		faults = append(faults, o.Inject(f))
	}
	return func() {
		for _, end := range faults {
			end()
		}
	}
}

// step is one step of the machine's life.
func (o *owner) step() {
	if o.chance(15) {
		o.restart()
		o.note("restart")
	}
	if o.providerID != "" {
		o.watch()
		return
	}
	req := request(o.name(), class())
	req.Token = fmt.Sprintf("%s-%d", req.Machine.UID, o.attempt)
	in, err := o.driver.Create(o.t.Context(), req)
	o.created = time.Now()
	o.note("create %d: %v", o.attempt, err)
	o.pass(time.Duration(o.random.IntN(60)) * time.Second)
	switch code := provider.CodeOf(err); {
	case err == nil && o.chance(30):
		o.note("crash before the answer is recorded")
	case err == nil:
		o.record(in)
	case code == provider.AlreadyExists:
		o.nextAttempt()
	}
}

// watch looks for a recorded instance. After a failed launch, another attempt begins for the same machine. An
// instance counts as vanished after two reads.
func (o *owner) watch() {
	if o.chance(10) {
		o.Terminate(o.providerID[strings.LastIndex(o.providerID, "/")+1:])
		o.note("another user terminates %s", o.providerID)
	}
	in, err := o.driver.Get(o.t.Context(), o.get(true))
	o.note("get %s: %v", o.providerID, err)
	switch {
	case err == nil:
		o.handle = in.CreateHandle
		fallthrough
	case !provider.IsNotFound(err):
		o.pass(time.Minute)
		return
	case provider.CreateCodeOf(err) != "":
		o.deleteInstance()
		return
	}
	o.pass(max(0, o.created.Add(o.settle).Sub(time.Now())) + 5*time.Second)
	if _, err := o.driver.Get(o.t.Context(), o.get(true)); provider.IsNotFound(err) {
		o.providerID, o.machine, o.attempt = "", o.machine+1, 1
		o.note("vanished")
	}
}

// deleteInstance deletes the instance of a failed launch. Then the next attempt begins.
func (o *owner) deleteInstance() {
	result, err := o.driver.Delete(o.t.Context(), provider.DeleteRequest(o.get(true)))
	o.note("delete %s: %+v %v", o.providerID, result, err)
	o.pass(10 * time.Second)
	if err == nil && result.Gone {
		o.providerID, o.handle, o.attempt = "", "", o.attempt+1
	}
}

// nextAttempt begins another attempt if lookups by tags find nothing until CreateSettle has passed.
func (o *owner) nextAttempt() {
	for range 2 {
		in, err := o.driver.Get(o.t.Context(), o.get(false))
		o.note("look up: %v", err)
		if err == nil && in.State != provider.StateTerminating {
			o.record(in)
			return
		}
		if !provider.IsNotFound(err) {
			return
		}
		o.pass(max(0, o.created.Add(o.settle).Sub(time.Now())) + 5*time.Second)
	}
	o.attempt++
}

// Whatever crashes, lags or gets lost, a machine never has two instances. The fake counts them. The clock of the
// runs is simulated.
func TestNoMachineHasTwoInstances(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("the first seed is %d", seed)
	created, attempts := 0, 0
	for run := range *runsFlag {
		synctest.Test(t, func(t *testing.T) {
			o := newOwner(t, seed+uint64(run))
			for range 6 {
				end := o.disturb()
				for range 4 {
					o.step()
				}
				end()
			}
			if o.most > 1 {
				t.Fatalf("seed %d: the machine has %d instances:\n%s", seed+uint64(run), o.most, strings.Join(o.log, "\n"))
			}
			created, attempts = created+o.Launched(), attempts+o.attempt+o.machine
		})
	}
	t.Logf("%d runs: %d instances, %d machines and further attempts", *runsFlag, created, attempts)
	if created <= *runsFlag || attempts <= *runsFlag {
		t.Errorf("the runs created %d instances, %d machines and further attempts: they test too little", created,
			attempts)
	}
}
