package fakevsphere

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Fault is a way in which the vCenter fails.
type Fault struct {
	// Methods are the names of the methods of the API that the fault affects. Default: all.
	Methods []string
	// Changes limits the fault to calls that change something.
	Changes bool
	// Skip is the number of affected calls that succeed before the fault begins.
	Skip int
	// Times is the number of calls that fail. Default: all.
	Times int

	// Status is the HTTP status of the answer, with RetryAfter seconds if positive. The call has no effect.
	Status, RetryAfter int
	// Name is the name of the SOAP fault in the answer, such as NoPermission. The call has no effect.
	Name string
	// LoseAnswer executes the call and closes the connection.
	LoseAnswer bool
	// Hang does not answer until the client gives up.
	Hang bool
	// Late executes the call after this time. Its answer is the one of Status.
	Late time.Duration
	// IgnoreShutdown answers without effect.
	IgnoreShutdown bool
	// UpperCase writes the UUIDs of virtual machines in answers in upper case.
	UpperCase bool
	// HideTags reports that the user may not read the tags of virtual machines.
	HideTags bool
	// Pad is the number of spaces before an answer.
	Pad int64
	// CloneStaysOff lets clones fail with this fault after the virtual machine exists, and before it is switched on.
	CloneStaysOff string
	// CloneFails lets clones fail with this fault before the virtual machine exists.
	CloneFails string
}

type activeFault struct {
	Fault
	left int
	// failed is the number of calls that have failed.
	failed int
}

// Inject makes the vCenter fail until end is called.
func (v *VSphere) Inject(f Fault) (end func()) {
	active := &activeFault{Fault: f, left: f.Skip}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, active)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.faults = slices.DeleteFunc(v.faults, func(other *activeFault) bool { return other == active })
	}
}

// faultFor returns the first active fault that affects a call.
func (v *VSphere) faultFor(method string) *Fault {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.faults {
		if len(f.Methods) > 0 && !slices.Contains(f.Methods, method) || f.Changes && !changes(method) {
			continue
		}
		if f.left > 0 {
			f.left--
			continue
		}
		if f.Times > 0 && f.failed == f.Times {
			continue
		}
		f.failed++
		return &f.Fault
	}
	return nil
}

func changes(method string) bool {
	return strings.HasSuffix(method, "_Task") || method == "ShutdownGuest"
}

var (
	methodFormat     = regexp.MustCompile(`<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)`)
	operationFormat  = regexp.MustCompile(`<operationID[^>]*>([^<]*)<`)
	taskFormat       = regexp.MustCompile(`<returnval type="Task"[^>]*>([^<]+)<`)
	uuidFormat       = regexp.MustCompile(`">[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}</val>`)
	tagFormat        = regexp.MustCompile(`<propSet><name>config\.extraConfig\[[^<]*machinist[^<]*</name>.*?</propSet>`)
	maxRequestBytes  = int64(4 << 20)
	folderInRequest  = regexp.MustCompile(`(<folder[^>]*>)[^<]+<`)
	nameInRequest    = regexp.MustCompile(`<name>[^<]+<`)
	powerOnInRequest = regexp.MustCompile(`<powerOn>true</powerOn>`)
)

func group(format *regexp.Regexp, text []byte) string {
	if found := format.FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return ""
}

// ServeHTTP serves the SOAP API.
func (v *VSphere) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequestBytes))
	if err != nil {
		http.Error(w, "the request cannot be read", http.StatusBadRequest)
		return
	}
	method := group(methodFormat, body)
	if method == "Login" {
		v.logins.Add(1)
	}
	f := v.faultFor(method)
	if f == nil {
		f = &Fault{}
	}
	switch {
	case f.Hang:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Name != "":
		answer(w, http.StatusInternalServerError, soapFault(f.Name))
		return
	case f.IgnoreShutdown && method == "ShutdownGuest":
		answer(w, http.StatusOK, envelope(`<ShutdownGuestResponse xmlns="urn:vim25"></ShutdownGuestResponse>`))
		return
	case f.Late > 0:
		request := r.Clone(context.WithoutCancel(r.Context()))
		v.late.Go(func() {
			time.Sleep(f.Late)
			v.execute(request, method, body, &Fault{})
		})
	}
	if f.Status != 0 {
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		}
		w.WriteHeader(f.Status)
		return
	}
	recorded := v.execute(r, method, body, f)
	if f.LoseAnswer {
		panic(http.ErrAbortHandler)
	}
	out := recorded.Body.Bytes()
	if f.HideTags {
		out = tagFormat.ReplaceAll(out, []byte(`<missingSet><path>config.extraConfig</path><fault><fault xsi:type="NoPermission">`+
			`<object type="VirtualMachine">vm-1</object><privilegeId>System.Read</privilegeId></fault></fault></missingSet>`))
	}
	if f.UpperCase {
		out = uuidFormat.ReplaceAllFunc(out, func(found []byte) []byte {
			return append(bytes.ToUpper(bytes.TrimSuffix(found, []byte("</val>"))), "</val>"...)
		})
	}
	for name, values := range recorded.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(recorded.Code)
	if f.Pad > 0 {
		_, _ = io.Copy(w, io.LimitReader(spaces{}, f.Pad))
	}
	_, _ = w.Write(out)
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// execute lets vcsim execute a call.
func (v *VSphere) execute(r *http.Request, method string, body []byte, f *Fault) *httptest.ResponseRecorder {
	isClone := method == "CloneVM_Task"
	if isClone && f.CloneFails != "" {
		// The name of the template's folder is taken, so vcsim creates nothing.
		body = folderInRequest.ReplaceAll(body, []byte("${1}"+v.templates.Value+"<"))
		body = nameInRequest.ReplaceAll(body, []byte("<name>"+templateName+"<"))
	}
	if isClone && f.CloneStaysOff != "" {
		body = powerOnInRequest.ReplaceAll(body, []byte("<powerOn>false</powerOn>"))
	}
	request := r.Clone(r.Context())
	request.Body = io.NopCloser(bytes.NewReader(body))
	recorded := httptest.NewRecorder()
	v.sdk.ServeHTTP(recorded, request)
	id := group(taskFormat, recorded.Body.Bytes())
	if !isClone || id == "" {
		return recorded
	}
	task, ok := v.model.Map().Get(types.ManagedObjectReference{Type: "Task", Value: id}).(*simulator.Task)
	if !ok {
		return recorded
	}
	v.mu.Lock()
	v.created++
	v.clones = append(v.clones, task)
	v.mu.Unlock()
	// vcsim does not set the activation ID.
	v.update(task, types.PropertyChange{Name: "info.activationId", Val: group(operationFormat, body)})
	if name := f.CloneStaysOff + f.CloneFails; name != "" {
		v.late.Go(func() {
			task.Wait()
			v.update(task, types.PropertyChange{Name: "info.state", Val: types.TaskInfoStateError},
				types.PropertyChange{Name: "info.error", Val: &types.LocalizedMethodFault{Fault: faultNamed(name)}})
		})
	}
	return recorded
}

func (v *VSphere) update(task *simulator.Task, all ...types.PropertyChange) {
	ctx := v.model.Service.Context
	v.model.Map().AtomicUpdate(ctx, task, all)
}

func faultNamed(name string) types.BaseMethodFault {
	switch name {
	case "InsufficientResourcesFault":
		return &types.InsufficientResourcesFault{}
	case "NoPermission":
		return &types.NoPermission{PrivilegeId: "VirtualMachine.Interact.PowerOn"}
	case "NotAuthenticated":
		return &types.NotAuthenticated{}
	case "InvalidLogin":
		return &types.InvalidLogin{}
	}
	panic("fakevsphere has no fault " + name)
}

func soapFault(name string) string {
	extra := ""
	if name == "NoPermission" || name == "NotAuthenticated" {
		extra = `<object type="Folder">group-d1</object><privilegeId>VirtualMachine.Inventory.CreateFromExisting</privilegeId>`
	}
	return envelope(fmt.Sprintf(`<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>fault</faultstring>`+
		`<detail><%sFault xmlns="urn:vim25" xsi:type="%s">%s</%sFault></detail></soapenv:Fault>`, name, name, extra, name))
}

func envelope(body string) string {
	return `<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" ` +
		`xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>` + body + `</soapenv:Body></soapenv:Envelope>`
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}
