package driver

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"reflect"
	"sync"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// session is the session of one account in one vCenter, which all calls of the account share. It is safe for
// concurrent use.
type session struct {
	vcenter string
	url     *url.URL
	account account
	http    *http.Client

	mu      sync.Mutex
	current *vim25.Client
}

// session returns the session of the credentials in a vCenter, without calling the vCenter.
func (d *Driver) session(c provider.Credentials, vcenter string) (*session, error) {
	return d.sessions.Get(c, vcenter, func() (*session, error) {
		text, err := d.urlOf(vcenter)
		if err != nil {
			return nil, err
		}
		a, err := parseCredentials(c)
		if err != nil {
			return nil, err
		}
		u, err := url.Parse(text)
		if err != nil {
			return nil, provider.Errorf(provider.Internal, "the URL of vCenter %q is invalid", vcenter)
		}
		if u.Path == "" || u.Path == "/" {
			u.Path = vim25.Path
		}
		transport := d.options.Transport
		if a.roots != nil {
			withRoots := httpapi.Transport(d.options.Endpoints)
			withRoots.TLSClientConfig = &tls.Config{RootCAs: a.roots, MinVersion: tls.VersionTLS12}
			transport = withRoots
		}
		return &session{vcenter: vcenter, url: u, account: a, http: httpapi.Client(checkedStatus{transport})}, nil
	})
}

func (d *Driver) urlOf(vcenter string) (string, error) {
	text, ok := d.options.VCenters[vcenter]
	if !ok {
		return "", provider.InvalidField("vcenter", "the flag --vsphere-vcenter of the provider has no vCenter %.64q",
			vcenter)
	}
	return text, nil
}

// connect returns a client with a session. If another client has replaced the ended one, connect returns that client.
// Otherwise connect signs in. It holds the lock meanwhile, so that parallel calls do not open several sessions.
func (s *session) connect(ctx context.Context, ended *vim25.Client) (*vim25.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current != ended {
		return s.current, nil
	}
	base := soap.NewClient(s.url, false)
	base.Client = *s.http
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	base.Jar = jar
	client, err := vim25.NewClient(ctx, base)
	if err != nil {
		return nil, translate(ctx, err, "connect to vCenter "+s.vcenter)
	}
	if client.ServiceContent.SessionManager == nil {
		return nil, provider.Errorf(provider.Internal, "connect to vCenter %s: the answer names no session manager",
			s.vcenter)
	}
	_, err = methods.Login(ctx, client, &types.Login{This: *client.ServiceContent.SessionManager,
		UserName: s.account.username, Password: s.account.password})
	if err != nil {
		return nil, translate(ctx, err, "sign in to vCenter "+s.vcenter)
	}
	s.current = client
	return client, nil
}

// RoundTrip implements soap.RoundTripper. If the session has ended, RoundTrip signs in again and repeats the call once.
// The first call had no effect.
func (s *session) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	client, err := s.connect(ctx, nil)
	if err != nil {
		return err
	}
	err = client.RoundTrip(ctx, req, res)
	if !sessionEnded(err, res) {
		return err
	}
	if client, err = s.connect(ctx, client); err != nil {
		return err
	}
	reflect.ValueOf(res).Elem().SetZero()
	if err = client.RoundTrip(ctx, req, res); err == nil && sessionEnded(nil, res) {
		return provider.Errorf(provider.Unauthenticated, "vCenter %s does not accept a new session", s.vcenter)
	}
	return err
}

// sessionEnded reports whether vCenter refused a call for lack of a session. The property collector does not refuse the
// call, but omits all properties.
func sessionEnded(err error, res soap.HasFault) bool {
	if err != nil {
		_, ended := faultOf(err).(types.NotAuthenticated)
		return ended
	}
	body, ok := res.(*methods.RetrievePropertiesExBody)
	if !ok || body.Res == nil || body.Res.Returnval == nil {
		return false
	}
	for _, o := range body.Res.Returnval.Objects {
		for _, missing := range o.MissingSet {
			if _, ended := missing.Fault.Fault.(*types.NotAuthenticated); ended {
				return true
			}
		}
	}
	return false
}

// content returns the managed objects of vCenter's services.
func (s *session) content(ctx context.Context) (types.ServiceContent, error) {
	client, err := s.connect(ctx, nil)
	if err != nil {
		return types.ServiceContent{}, err
	}
	c := client.ServiceContent
	if c.SearchIndex == nil || c.TaskManager == nil || c.EventManager == nil {
		return c, provider.Errorf(provider.FailedPrecondition, "the server of vCenter %s is not a vCenter", s.vcenter)
	}
	return c, nil
}

// checkedStatus turns an answer of a proxy or an overloaded vCenter into an error that keeps its headers.
type checkedStatus struct{ http.RoundTripper }

// statusError is an HTTP status that is not an answer of the SOAP API.
type statusError struct {
	status int
	header http.Header
}

func (e *statusError) Error() string { return http.StatusText(e.status) }

func (c checkedStatus) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// The SOAP API answers with 200, or with 500 and a fault.
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusInternalServerError {
		return response, nil
	}
	return nil, errors.Join(&statusError{response.StatusCode, response.Header}, response.Body.Close())
}
