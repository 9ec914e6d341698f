// The types of this package are checked without NestJS, which few programs have: here, all of its exports are `any`.
declare module '@nestjs/common';
