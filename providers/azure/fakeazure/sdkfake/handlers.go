package sdkfake

import (
	"context"
	"encoding/json"
	"fmt"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"

	"machinist.dev/machinist/providers/azure/fakeazure"
)

// Handlers of most operations, by what they take: a group and a name, a body or none, and options, of which they know
// none.

func reads[T, O any](s *served, operation string) func(context.Context, string, string, *O) (azfake.Responder[T],
	azfake.ErrorResponder) {
	return func(_ context.Context, group, name string, o *O) (azfake.Responder[T], azfake.ErrorResponder) {
		if o != nil {
			return azfake.Responder[T]{}, unserved(o)
		}
		return once[T](s, s.call(operation, group, name))
	}
}

func changes[T, B, O any](s *served, operation string) func(context.Context, string, string, B,
	*O) (azfake.Responder[T], azfake.ErrorResponder) {
	return func(_ context.Context, group, name string, body B, o *O) (azfake.Responder[T], azfake.ErrorResponder) {
		c, err := s.with(body, s.call(operation, group, name))
		if o != nil || err != nil {
			return azfake.Responder[T]{}, unserved(o, err)
		}
		return once[T](s, c)
	}
}

func begins[T, O any](s *served, operation string) func(context.Context, string, string, *O) (azfake.PollerResponder[T],
	azfake.ErrorResponder) {
	return func(_ context.Context, group, name string, o *O) (azfake.PollerResponder[T], azfake.ErrorResponder) {
		if o != nil {
			return azfake.PollerResponder[T]{}, unserved(o)
		}
		return long[T](s, s.call(operation, group, name))
	}
}

func puts[T, B, O any](s *served, operation string) func(context.Context, string, string, B,
	*O) (azfake.PollerResponder[T], azfake.ErrorResponder) {
	return func(_ context.Context, group, name string, body B, o *O) (azfake.PollerResponder[T], azfake.ErrorResponder) {
		c, err := s.with(body, s.call(operation, group, name))
		if o != nil || err != nil {
			return azfake.PollerResponder[T]{}, unserved(o, err)
		}
		return long[T](s, c)
	}
}

func lists[T, O any](s *served, operation string) func(string, *O) azfake.PagerResponder[T] {
	return func(group string, o *O) (answer azfake.PagerResponder[T]) {
		if o != nil {
			answer.AddError(fmt.Errorf("%s: the options %+v are not served", operation, *o))
			return answer
		}
		return pages[T](s, s.call(operation, group))
	}
}

func listsAll[T, O any](s *served, operation string) func(*O) azfake.PagerResponder[T] {
	inGroup := lists[T, O](s, operation)
	return func(o *O) azfake.PagerResponder[T] { return inGroup("", o) }
}

// with is a call with a body.
func (s *served) with(body any, c fakeazure.Call) (fakeazure.Call, error) {
	var err error
	c.Body, err = json.Marshal(body)
	return c, err
}

func unserved(what ...any) (refused azfake.ErrorResponder) {
	refused.SetError(fmt.Errorf("this is not served: %+v", what))
	return refused
}

// text is what is at p, empty where there is nothing.
func text[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}
