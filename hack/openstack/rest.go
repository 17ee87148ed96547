package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

type client struct{ http *http.Client }

func newClient() *client { return &client{http: &http.Client{Timeout: time.Minute}} }

type session struct {
	client    *client
	token     string
	userID    string
	projectID string
}

func (c *client) login(ctx context.Context, keystone, user, password, project string) (*session, error) {
	domain := map[string]any{"name": "Default"}
	body := map[string]any{"auth": map[string]any{
		"identity": map[string]any{
			"methods": []string{"password"},
			"password": map[string]any{"user": map[string]any{
				"name": user, "password": password, "domain": domain,
			}},
		},
		"scope": map[string]any{"project": map[string]any{"name": project, "domain": domain}},
	}}
	var answer struct {
		Token struct {
			User    struct{ ID string }
			Project struct{ ID string }
		}
	}
	header, err := c.do(ctx, "POST", keystone+"/auth/tokens", nil, body, &answer)
	if err != nil {
		return nil, fmt.Errorf("log in as %s: %w", user, err)
	}
	return &session{
		client: c, token: header.Get("X-Subject-Token"),
		userID: answer.Token.User.ID, projectID: answer.Token.Project.ID,
	}, nil
}

// do sends a request and decodes the response. A body of the type []byte is sent unchanged, and any other body as JSON.
func (s *session) do(ctx context.Context, method, url string, body, into any) error {
	header := http.Header{
		"X-Auth-Token": {s.token},
		// Each service reads only its own part of this header.
		"Openstack-Api-Version": {"compute 2.93", "volume 3.60"},
	}
	_, err := s.client.do(ctx, method, url, header, body, into)
	return err
}

func (c *client) do(
	ctx context.Context, method, url string, header http.Header, body, into any,
) (http.Header, error) {
	content, contentType := []byte(nil), "application/json"
	switch body := body.(type) {
	case nil:
	case []byte:
		content, contentType = body, "application/octet-stream"
	default:
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", contentType)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	if response.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %.500s", method, url, response.Status, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, url, err)
		}
	}
	return response.Header, nil
}
