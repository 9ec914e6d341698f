// The package is compiled without NestJS, which few programs have.
declare module '@nestjs/common';
