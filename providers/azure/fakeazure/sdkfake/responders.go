package sdkfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"

	"machinist.dev/machinist/providers/azure/fakeazure"
)

// operationParam is the parameter that clients have of the links by which they follow an operation.
const operationParam = "operation"

// once answers a call that is done when it is answered.
func once[T any](s *served, c fakeazure.Call) (answer azfake.Responder[T], refused azfake.ErrorResponder) {
	out, typed, err := asked[T](s, c)
	if err != nil {
		refused.SetError(err)
		return answer, refused
	}
	answer.SetResponse(out.Status, typed, &azfake.SetResponseOptions{Header: out.Header})
	return answer, refused
}

// long answers a call that begins an operation, and each later one that asks how that stands.
func long[T any](s *served, c fakeazure.Call) (answer azfake.PollerResponder[T], refused azfake.ErrorResponder) {
	if at := s.request.URL.Query().Get(operationParam); at != "" {
		if err := follow(s, c, at, &answer); err != nil {
			refused.SetError(err)
		}
		return answer, refused
	}
	out, typed, err := asked[T](s, c)
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

// follow tells how an operation stands that a call has begun. What it has made or changed is read at its end.
// https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
func follow[T any](s *served, c fakeazure.Call, at string, answer *azfake.PollerResponder[T]) error {
	// "", subscriptions, one, providers, Microsoft.Compute, locations, one, operations, one
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
		var made T
		if kind, verb, _ := strings.Cut(c.Operation, "_"); verb == "CreateOrUpdate" || verb == "Update" {
			if _, made, err = asked[T](s, s.call(kind+"_Get", c.Group, c.Names...)); err != nil {
				return err
			}
		}
		answer.SetTerminalResponse(http.StatusOK, made, nil)
	default:
		return fmt.Errorf("the operation %s is %v", at, status)
	}
	return nil
}

// pages answers with one page of a list and, where there are more, a link to the next one.
func pages[T any](s *served, c fakeazure.Call) (answer azfake.PagerResponder[T]) {
	out, page, err := asked[T](s, c)
	if err != nil {
		answer.AddError(err)
		return answer
	}
	answer.AddPage(out.Status, page, nil)
	if out.SkipToken != "" {
		query := s.request.URL.Query()
		query.Set("$skiptoken", out.SkipToken)
		s.request.URL.RawQuery = query.Encode()
		answer.AddPage(out.Status, page, nil) // For the link to it: it is read when that is followed.
	}
	return answer
}
