package sdkfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"

	"machinist.dev/machinist/providers/azure/fakeazure"
)

// operationParam is a query parameter of the links that clients poll. The value of the parameter is the path of the
// operation.
const operationParam = "operation"

// respond executes a call that starts no operation.
func respond[T any](s *handler, c fakeazure.Call) (answer azfake.Responder[T], refused azfake.ErrorResponder) {
	out, typed, err := execute[T](s, c)
	if err != nil {
		refused.SetError(err)
		return answer, refused
	}
	answer.SetResponse(out.Status, typed, &azfake.SetResponseOptions{Header: out.Header})
	return answer, refused
}

// respondLong responds to a call that starts an operation, and to later polls of it.
func respondLong[T any](s *handler, c fakeazure.Call) (answer azfake.PollerResponder[T],
	refused azfake.ErrorResponder) {
	if at := s.request.URL.Query().Get(operationParam); at != "" {
		if err := followOperation(s, c, at, &answer); err != nil {
			refused.SetError(err)
		}
		return answer, refused
	}
	out, typed, err := execute[T](s, c)
	switch {
	case err != nil:
		refused.SetError(err)
	case out.Operation == "":
		answer.SetTerminalResponse(out.Status, typed, nil)
	default:
		query := s.request.URL.Query()
		query.Set(operationParam, out.Operation)
		s.request.URL.RawQuery = query.Encode()
		if out.Body != nil {
			s.body, err = json.Marshal(typed)
		}
		if err != nil {
			refused.SetError(err)
		}
		answer.AddNonTerminalResponse(out.Status, nil)
	}
	return answer, refused
}

// followOperation returns the status of an operation and, at its end, the changed resource.
// https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
func followOperation[T any](s *handler, c fakeazure.Call, at string, answer *azfake.PollerResponder[T]) error {
	// The path has the segments "", subscriptions, *, providers, Microsoft.Compute, locations, *, operations, *.
	parts := strings.Split(at, "/")
	_, namespace, _ := strings.Cut(parts[4], ".")
	out, err := s.do(s.call(namespace+"Operations_Get", "", parts[6], parts[8]))
	if err != nil {
		return err
	}
	switch status := out.Body["status"]; status {
	case "InProgress":
		answer.AddNonTerminalResponse(http.StatusOK, nil)
	case "Failed":
		failure, _ := out.Body["error"].(map[string]any)
		answer.SetTerminalError(http.StatusConflict, fmt.Sprint(failure["code"]))
	case "Succeeded":
		var changed T
		if kind, verb, _ := strings.Cut(c.Operation, "_"); verb == "CreateOrUpdate" || verb == "Update" {
			if _, changed, err = execute[T](s, s.call(kind+"_Get", c.Group, c.Names...)); err != nil {
				return err
			}
		}
		answer.SetTerminalResponse(http.StatusOK, changed, nil)
	default:
		return fmt.Errorf("operation %s has the unknown status %v", at, status)
	}
	return nil
}

// pages responds with one page of a list and a link to the next page, if any.
func pages[T any](s *handler, c fakeazure.Call) (answer azfake.PagerResponder[T]) {
	out, page, err := execute[T](s, c)
	if err != nil {
		answer.AddError(err)
		return answer
	}
	answer.AddPage(out.Status, page, nil)
	if out.SkipToken != "" {
		query := s.request.URL.Query()
		query.Set("$skiptoken", out.SkipToken)
		s.request.URL.RawQuery = query.Encode()
		// The SDK creates a link only if there is a second page. When the client follows the link, the transport reads
		// the next page of the fake Azure.
		answer.AddPage(out.Status, page, nil)
	}
	return answer
}
