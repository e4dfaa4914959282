package server

import (
	"context"

	"google.golang.org/grpc"

	"leasehold.dev/protos/errs"
)

// unaryErrors and streamErrors are the worker socket's edge: kinds become codes. The mesh has its own on its server.
func unaryErrors(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	resp, err := next(ctx, req)
	return resp, errs.ToStatus(err)
}

func streamErrors(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return errs.ToStatus(next(srv, ss))
}
