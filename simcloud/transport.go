package simcloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxResponseBytes limits an answer. A full page with the maximum number of tags has about 20 MiB.
const maxResponseBytes = 32 << 20

// Config configures a Client or an Admin.
type Config struct {
	// Endpoint is the base URL, such as "http://127.0.0.1:8080".
	Endpoint string
	// Token is the token of an account for a Client, or the admin token for an Admin.
	Token string
	// HTTPClient sends the calls without following redirects. Default: a client with many idle connections and no
	// timeout other than the context's.
	HTTPClient *http.Client
}

type transport struct {
	base  *url.URL
	token string
	http  http.Client
}

func newTransport(cfg Config) (*transport, error) {
	base, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("parse cloud endpoint %q: %w", cfg.Endpoint, err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.User != nil {
		return nil, fmt.Errorf("cloud endpoint %q must have the form http(s)://host[:port] without a user", cfg.Endpoint)
	}
	if cfg.Token == "" {
		return nil, errors.New("the token for the cloud must not be empty")
	}
	t := &transport{base: base, token: cfg.Token}
	if cfg.HTTPClient != nil {
		t.http = *cfg.HTTPClient
	} else {
		// The cloud is on the loopback interface, so use no proxy. Keep one idle connection for each parallel call.
		t.http.Transport = &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}
	}
	t.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return t, nil
}

type call struct {
	operation string
	method    string
	path      []string // path elements below the root, not escaped
	query     url.Values
	body      any // body of the request, or nil
	result    any // destination of the answer's body, or nil to ignore the body
}

// url returns the URL of the call. IDs may be arbitrary text and must not change the endpoint.
func (t *transport) url(root string, c call) (string, error) {
	elements := []string{root}
	for _, element := range c.path {
		if element == "" || element == "." || element == ".." {
			return "", &Error{Code: CodeInvalidParameter, Message: fmt.Sprintf("%s: %q is not a name", c.operation, element)}
		}
		elements = append(elements, url.PathEscape(element))
	}
	u := t.base.JoinPath(elements...)
	u.RawQuery = c.query.Encode()
	return u.String(), nil
}

func (t *transport) do(ctx context.Context, root string, c call) error {
	var body io.Reader
	if c.body != nil {
		data, err := json.Marshal(c.body)
		if err != nil {
			return fmt.Errorf("encode the request of %s: %w", c.operation, err)
		}
		body = bytes.NewReader(data)
	}
	target, err := t.url(root, c)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, c.method, target, body)
	if err != nil {
		return fmt.Errorf("build the request of %s: %w", c.operation, err)
	}
	req.Header.Set("Authorization", "Bearer "+t.token)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}

	resp, err := t.http.Do(req)
	if err != nil {
		// Drop the URL from the message, because ConnectionError already names the operation.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return &ConnectionError{Operation: c.operation, Err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes+1))
	if err == nil && len(data) > maxResponseBytes {
		err = fmt.Errorf("the answer is longer than %d bytes", maxResponseBytes)
	}
	if err != nil {
		return &ConnectionError{Operation: c.operation, Err: err}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return errorOf(resp, data)
	}
	if c.result == nil {
		return nil
	}
	if err := json.Unmarshal(data, c.result); err != nil {
		return &ConnectionError{Operation: c.operation, Err: fmt.Errorf("decode the answer: %w", err)}
	}
	return nil
}

// errorOf returns the error in an answer. errorOf omits a body that is not from the cloud, because the content is
// unknown.
func errorOf(resp *http.Response, data []byte) *Error {
	var body ErrorBody
	if err := json.Unmarshal(data, &body); err != nil || body.Code.HTTPStatus() == 0 {
		body = ErrorBody{
			Code:    codeOfStatus(resp.StatusCode),
			Message: fmt.Sprintf("the answer with status %d is not readable", resp.StatusCode),
		}
	}
	e := &Error{Code: body.Code, Message: body.Message, RetryAfter: time.Duration(body.RetryAfter)}
	if e.RetryAfter <= 0 {
		// With a number of at most 31 bits, the conversion to time.Duration cannot overflow.
		seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31)
		if err != nil {
			seconds = 0
		}
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
